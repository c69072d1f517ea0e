// What a Grafana server tells its page before anything else runs.
import { createTheme } from '@grafana/data';

const theme = createTheme({ colors: { mode: 'light' } });
window.grafanaBootData = {
  assets: {},
  navTree: [],
  settings: { featureToggles: {}, theme2: theme, panels: {}, datasources: {}, buildInfo: {} },
  user: { isSignedIn: false, locale: 'en-US', language: 'en-US', orgRole: 'Viewer' },
};

export { theme };
