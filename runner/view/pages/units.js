"use strict";
// Times in ps, as people write them; and a request of data.
const UNITS = [[1e12, "s"], [1e9, "ms"], [1e6, "us"], [1e3, "ns"], [1, "ps"]];

// A duration with as many digits as tell it from its neighbours at `step` ps, three where no step is given.
function duration(ps, step) {
  const size = Math.abs(ps);
  const [factor, name] = UNITS.find(([least]) => size >= least) || UNITS[UNITS.length - 1];
  const value = ps / factor;
  if (step === undefined) return `${Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 12 })} ${name}`;
  const digits = Math.min(12, Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9)));
  return `${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${name}`;
}

// A time in one unit that suits the step between ticks: "1,234.5 us".
function tick(ps, step, span) {
  const [factor, name] = UNITS.find(([least]) => Math.max(span, step) >= least) || UNITS[UNITS.length - 1];
  const digits = Math.min(12, Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9)));
  return `${(ps / factor).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${name}`;
}

// "12 us" or "3.5 ms" as ps; NaN for anything else. A number alone is in ps.
function parseTime(text) {
  const found = /^\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*(ps|ns|us|µs|ms|s)?\s*$/i.exec(text);
  if (!found) return NaN;
  const unit = (found[2] || "ps").toLowerCase().replace("µ", "u");
  return Number(found[1].replaceAll(/[_,]/g, "")) * UNITS.find(([, name]) => name === unit)[0];
}

async function ask(what, parameters, options) {
  const query = new URLSearchParams(parameters);
  const answer = await fetch(`data/${what}?${query}`, options);
  if (!answer.ok) {
    const error = new Error(await answer.text());
    error.status = answer.status;
    throw error;
  }
  return answer;
}

const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
