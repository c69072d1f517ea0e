// A data source that asks a Prometheus directly and answers with data frames.
import { FieldType } from '@grafana/data';
import { RuntimeDataSource } from '@grafana/scenes';

const VARIABLES = { $instance: '.*', $pool: '.*', $__rate_interval: '5s', $__interval: '1s' };

function filled(expression) {
  return Object.entries(VARIABLES).reduce((text, [name, value]) => text.replaceAll(name, value), expression);
}

function nameOf(target, labels) {
  if (target.legendFormat) {
    return target.legendFormat.replace(/{{(.*?)}}/g, (_, label) => labels[label.trim()] ?? '');
  }
  return Object.values(labels).join(' ') || 'value';
}

function seriesFrame(target, found) {
  const { __name__, ...labels } = found.metric;
  const points = found.values ?? [found.value];
  const name = nameOf(target, labels);
  return {
    refId: target.refId,
    name,
    fields: [
      { name: 'Time', type: FieldType.time, config: {}, values: points.map(([seconds]) => seconds * 1000) },
      {
        name,
        type: FieldType.number,
        config: { displayNameFromDS: name },
        labels,
        values: points.map(([, value]) => Number(value)),
      },
    ],
    length: points.length,
  };
}

function tableFrame(target, results) {
  const names = [...new Set(results.flatMap((found) => Object.keys(found.metric)))].filter((name) => name !== '__name__');
  const fields = names.map((name) => ({
    name,
    type: FieldType.string,
    config: {},
    values: results.map((found) => found.metric[name] ?? ''),
  }));
  return { refId: target.refId, name: target.refId, fields, length: results.length };
}

export class PrometheusHere extends RuntimeDataSource {
  constructor(url) {
    super('prometheus', 'here');
    this.url = url;
  }

  async query(request) {
    const [from, to] = [request.range.from.valueOf() / 1000, request.range.to.valueOf() / 1000];
    const answers = await Promise.all(
      request.targets.map(async (target) => {
        const parameters = new URLSearchParams({ query: filled(target.expr) });
        if (target.instant) {
          parameters.set('time', to);
        } else {
          parameters.set('start', from);
          parameters.set('end', to);
          parameters.set('step', '0.5');
        }
        const path = target.instant ? 'query' : 'query_range';
        const answer = await (await fetch(`${this.url}/api/v1/${path}?${parameters}`)).json();
        const results = answer.data?.result ?? [];
        if (target.format === 'table') {
          return results.length ? [tableFrame(target, results)] : [];
        }
        return results.map((found) => seriesFrame(target, found));
      })
    );
    return { data: answers.flat() };
  }

  async testDatasource() {
    return { status: 'success', message: '' };
  }
}
