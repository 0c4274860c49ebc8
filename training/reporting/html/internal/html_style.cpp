#include "lockstep/training/reporting/html/internal/html_page.h"

namespace lockstep {

// The lines' colours differ for every kind of colour vision: blue, vermilion, green, purple, orange, sky,
// yellow and grey, in an order that alternates light and dark. Each has a contrast of at least 3:1 with its
// background.
const char* html_style() {
  return R"css(:root {
  --page: #f6f7f9; --card: #ffffff; --edge: #d9dde3; --text: #1b1f24; --quiet: #57606a; --grid: #e3e6ea; --axis: #8b939c;
  --accent: #0072b2; --heat: #08519c; --on-heat: #ffffff; --bar: #4c92c3;
  --s0: #0072b2; --s1: #c04a00; --s2: #007f5c; --s3: #a8497f; --s4: #b07600; --s5: #2f8fc9; --s6: #6b6b00; --s7: #666d75;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1116; --card: #161b22; --edge: #30363d; --text: #e6edf3; --quiet: #9da7b1; --grid: #262c34; --axis: #6e7781;
    --accent: #58b4f0; --heat: #6baed6; --on-heat: #06101a; --bar: #3f7fae;
    --s0: #58b4f0; --s1: #ff9152; --s2: #2fc898; --s3: #e295c0; --s4: #efb640; --s5: #8fd0ff; --s6: #dbdb5a; --s7: #aab3bd;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", sans-serif;
}
header, main { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 2rem; }
main { padding-bottom: 4rem; }
h1 { margin: 0 0 .25rem; font-size: 1.5rem; line-height: 1.2; font-weight: 650; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 .75rem; font-size: 1.2rem; line-height: 1.3; font-weight: 650; }
p { margin: 0 0 .75rem; max-width: 46rem; overflow-wrap: anywhere; }
header p { margin: 0 0 .25rem; color: var(--quiet); overflow-wrap: anywhere; }
header p.lead { color: var(--text); font-size: 1.05rem; }
figure { margin: 0; }
.key-figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1.5rem 0 0; }
.key-figures div { display: flex; flex-direction: column; justify-content: space-between; background: var(--card); border: 1px solid var(--edge); border-radius: .5rem; padding: .65rem .9rem; }
.key-figures dt { color: var(--quiet); font-size: .85rem; line-height: 1.35; }
.key-figures dd { margin: .1rem 0 0; font-size: 1.3rem; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); gap: 1rem; }
.figures .wide { grid-column: 1 / -1; }
.chart { background: var(--card); border: 1px solid var(--edge); border-radius: .5rem; padding: .9rem 1rem .75rem; min-width: 0; }
.chart figcaption { font-weight: 600; margin-bottom: .35rem; overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: 0 0 .4rem; padding: 0; list-style: none; color: var(--quiet);
  font-size: .875rem; }
.legend li { display: flex; align-items: center; gap: .4rem; overflow-wrap: anywhere; }
.key { flex: none; }
.scroll { overflow-x: auto; }
.figures + .scroll { margin-top: 1rem; }
.plot { display: block; width: 100%; height: auto; }
.plot text { font-size: 13px; fill: var(--quiet); font-variant-numeric: tabular-nums; }
.plot text.label { font-style: italic; }
.plot text.value, .plot text.count { fill: var(--text); }
.plot text.on-heat { fill: var(--on-heat); }
.grid { stroke: var(--grid); }
.axis { stroke: var(--axis); }
.reference { stroke: var(--text); stroke-dasharray: 4 3; }
.interval { stroke: var(--text); stroke-width: 1.6; }
.bar { fill: var(--bar); }
.matrix { fill: none; stroke: var(--edge); }
.heat { fill: var(--heat); }
.wait { fill: var(--grid); }
.ops .f { fill: var(--s0); } .ops .b { fill: var(--s1); } .ops .i { fill: var(--s3); } .ops .w { fill: var(--s6); }
.ops .later { fill-opacity: .4; stroke-width: .6; }
.ops .later.f { stroke: var(--s0); } .ops .later.b { stroke: var(--s1); } .ops .later.i { stroke: var(--s3); } .ops .later.w { stroke: var(--s6); }
.ops text.count, .ops text.on-heat { font-size: 11px; }
.line { fill: none; stroke-width: 1.9; stroke-linejoin: round; stroke-linecap: round; }
.line.dense { stroke-width: 1.1; }
.mark { stroke: var(--card); stroke-width: 1; }
.odd { fill: none; stroke: var(--text); stroke-width: 2; }
.line.s0, .odd.s0 { stroke: var(--s0); } .mark.s0 { fill: var(--s0); }
.line.s1, .odd.s1 { stroke: var(--s1); } .mark.s1 { fill: var(--s1); }
.line.s2, .odd.s2 { stroke: var(--s2); } .mark.s2 { fill: var(--s2); }
.line.s3, .odd.s3 { stroke: var(--s3); } .mark.s3 { fill: var(--s3); }
.line.s4, .odd.s4 { stroke: var(--s4); } .mark.s4 { fill: var(--s4); }
.line.s5, .odd.s5 { stroke: var(--s5); } .mark.s5 { fill: var(--s5); }
.line.s6, .odd.s6 { stroke: var(--s6); } .mark.s6 { fill: var(--s6); }
.line.s7, .odd.s7 { stroke: var(--s7); } .mark.s7 { fill: var(--s7); }
.line.s1, .line.s5 { stroke-dasharray: 7 4; }
.line.s2, .line.s6 { stroke-dasharray: 2 4; }
.line.s3, .line.s7 { stroke-dasharray: 10 4 2 4; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr)); gap: .75rem; }
.pictures figure { background: var(--card); border: 1px solid var(--edge); border-radius: .5rem; padding: .6rem; text-align: center; }
.pictures img { display: block; width: 100%; max-height: 10rem; object-fit: contain; image-rendering: pixelated; }
.pictures figcaption { margin-top: .4rem; font-size: .875rem; line-height: 1.35; overflow-wrap: anywhere; }
.pictures span { display: block; color: var(--quiet); font-variant-numeric: tabular-nums; }
.samples { display: grid; gap: .75rem; }
.sample p { margin: 0; max-width: none; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .925rem; }
.sample figcaption { color: var(--quiet); font-weight: 400; font-size: .85rem; }
table { border-collapse: collapse; font-size: .925rem; background: var(--card); }
.scroll:has(> table) { border: 1px solid var(--edge); border-radius: .5rem; background: var(--card); width: fit-content; max-width: 100%; }
.chart .scroll:has(> table) { border: 0; }
th, td { padding: .38rem .9rem; text-align: left; vertical-align: top; border-top: 1px solid var(--grid); overflow-wrap: break-word; }
thead th { border-top: 0; color: var(--quiet); font-weight: 600; vertical-align: bottom; line-height: 1.3; }
td { max-width: 34rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
.marked td { font-weight: 600; }
summary { cursor: pointer; color: var(--accent); margin: .5rem 0; }
@media (max-width: 40rem) {
  h1 { font-size: 1.25rem; }
  .key-figures { grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); }
  .key-figures dd { font-size: 1.1rem; }
  th, td { padding: .35rem .6rem; }
}
@media print { body { background: none; } .chart, .key-figures div, .pictures figure { break-inside: avoid; } }
)css";
}

}  // namespace lockstep
