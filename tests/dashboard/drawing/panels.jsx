// Panels out of the components that Grafana's own panels are made of.
import React from 'react';
import { FieldType, PanelPlugin, getDisplayProcessor } from '@grafana/data';
import { BarGauge, BigValue, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { theme } from './boot.js';

function configOf(panel, name) {
  const { defaults, overrides } = panel.fieldConfig;
  const config = structuredClone(defaults);
  for (const { matcher, properties } of overrides) {
    if (matcher.id === 'byName' && matcher.options === name) {
      for (const { id, value } of properties) {
        config[id] = value;
      }
    }
  }
  // JSON has no -Infinity: the first step is written as null.
  for (const step of config.thresholds?.steps ?? []) {
    step.value = step.value ?? -Infinity;
  }
  return config;
}

function dressed(panel, frames) {
  return frames.map((frame) => ({
    ...frame,
    fields: frame.fields.map((field, index) => {
      if (field.type === FieldType.time) {
        return { ...field, display: getDisplayProcessor({ field, theme }) };
      }
      const config = { ...configOf(panel, field.name), displayName: field.name, displayNameFromDS: field.name };
      const made = { ...field, config, state: { seriesIndex: index, displayName: field.name } };
      return { ...made, display: getDisplayProcessor({ field: made, theme }) };
    }),
  }));
}

function Words({ panel }) {
  const style = { alignItems: 'center', color: theme.colors.text.secondary, display: 'flex', height: '100%' };
  return <div style={{ ...style, justifyContent: 'center' }}>{panel.fieldConfig.defaults.noValue}</div>;
}

function numbersOf(panel, frames) {
  return dressed(panel, frames).flatMap((frame) =>
    frame.fields
      .filter((field) => field.type === FieldType.number)
      .map((field) => ({ field, value: { ...field.display(field.values.at(-1)), title: field.name } }))
  );
}

function Stat({ data, options, width, height }) {
  const found = numbersOf(options.panel, data.series);
  if (!found.length) {
    return <Words panel={options.panel} />;
  }
  return (
    <BigValue
      value={{ ...found[0].value, title: '' }}
      width={width}
      height={height}
      colorMode="background"
      graphMode="none"
      justifyMode="auto"
      textMode="value"
      theme={theme}
    />
  );
}

function Bars({ data, options, width, height }) {
  const found = numbersOf(options.panel, data.series);
  if (!found.length) {
    return <Words panel={options.panel} />;
  }
  const draw = ({ value, width, height }) => (
    <BarGauge
      value={value.value}
      field={{ ...value.field.config, min: 0, max: 1 }}
      display={value.field.display}
      width={width}
      height={height}
      orientation="horizontal"
      displayMode="basic"
      theme={theme}
      showUnfilled
    />
  );
  return (
    <VizRepeater
      source={data}
      width={width}
      height={height}
      orientation="horizontal"
      itemSpacing={8}
      renderValue={draw}
      getValues={() => found}
      renderCounter={0}
    />
  );
}

function Lines({ data, options, width, height, timeRange }) {
  const frames = dressed(options.panel, data.series);
  if (!frames.length) {
    return <Words panel={options.panel} />;
  }
  return (
    <TimeSeries
      frames={frames}
      width={width}
      height={height}
      timeRange={timeRange}
      timeZone="utc"
      legend={{ ...options.panel.options.legend, displayMode: 'list' }}
    />
  );
}

function Rows({ data, options, width, height }) {
  const [frame] = data.series;
  if (!frame) {
    return <Words panel={options.panel} />;
  }
  const organize = options.panel.transformations.find(({ id }) => id === 'organize').options;
  const fields = Object.keys(organize.indexByName)
    .map((name) => frame.fields.find((field) => field.name === name))
    .filter(Boolean)
    .map((field) => {
      const config = { custom: { align: 'left', cellOptions: { type: 'auto' } }, displayName: organize.renameByName[field.name] };
      const made = { ...field, config, state: { displayName: config.displayName } };
      return { ...made, display: getDisplayProcessor({ field: made, theme }) };
    });
  return <TableNG data={{ ...frame, fields }} width={width} height={height} cellHeight="sm" />;
}

export const PLUGINS = {
  bargauge: new PanelPlugin(Bars),
  stat: new PanelPlugin(Stat),
  table: new PanelPlugin(Rows),
  timeseries: new PanelPlugin(Lines),
};
