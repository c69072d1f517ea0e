// Draws a dashboard's JSON as a scene; the page's address says where Prometheus is and from when.
import './boot.js';
import React from 'react';
import { createRoot } from 'react-dom/client';
import { EventBusSrv, LoadingState, ThemeContext, standardFieldConfigEditorRegistry, toDataFrame } from '@grafana/data';
import { setAppEvents, setPluginImportUtils, setRunRequest } from '@grafana/runtime';
import {
  EmbeddedScene,
  SceneGridItem,
  SceneGridLayout,
  SceneGridRow,
  SceneQueryRunner,
  SceneTimeRange,
  VizPanel,
  sceneUtils,
} from '@grafana/scenes';
import { GlobalStyles } from '@grafana/ui';
import { MemoryRouter } from 'react-router-dom';
import { from, map } from 'rxjs';
import { theme } from './boot.js';
import { PLUGINS } from './panels.jsx';
import { PrometheusHere } from './prometheus.js';

const parameters = new URLSearchParams(window.location.search);
standardFieldConfigEditorRegistry.setInit(() => []);
setAppEvents(new EventBusSrv());
setPluginImportUtils({
  getPanelPluginFromCache: (id) => PLUGINS[id],
  importPanelPlugin: async (id) => PLUGINS[id],
});
setRunRequest((source, request) =>
  from(source.query(request)).pipe(
    map(({ data }) => ({
      request,
      series: data.map((frame) => toDataFrame(frame)),
      state: LoadingState.Done,
      timeRange: request.range,
    }))
  )
);
for (const [pluginId, plugin] of Object.entries(PLUGINS)) {
  sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
}
sceneUtils.registerRuntimeDataSource({ dataSource: new PrometheusHere(parameters.get('prometheus')) });

function itemOf(panel) {
  const { x, y, w: width, h: height } = panel.gridPos;
  if (panel.type === 'row') {
    return new SceneGridRow({ x, y, title: panel.title, isCollapsible: false, children: [] });
  }
  const $data = new SceneQueryRunner({
    datasource: { type: 'prometheus', uid: 'here' },
    queries: panel.targets.map(({ datasource, ...target }) => target),
  });
  const { title, description, type: pluginId } = panel;
  const body = new VizPanel({ title, description, pluginId, options: { panel }, $data });
  return new SceneGridItem({ x, y, width, height, body });
}

async function draw() {
  const board = await (await fetch('dashboard.json')).json();
  const scene = new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from: parameters.get('from'), to: parameters.get('to'), timeZone: 'utc' }),
    body: new SceneGridLayout({ children: board.panels.map(itemOf) }),
  });
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <MemoryRouter>
        <scene.Component model={scene} />
      </MemoryRouter>
    </ThemeContext.Provider>
  );
}

draw();
