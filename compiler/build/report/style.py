"""Holds the style sheet of a build's HTML report, with light, dark and print colours."""

CSS = """
:root{--ink:#1b1f24;--soft:#5c6670;--line:#d9dee3;--page:#fff;--card:#f5f7f9;--good:#1f7a4d;--bad:#b3261e;
--c0:#b3261e;--c1:#2467b3;--c2:#8a5a00;--c3:#7a3f9d;--c4:#1f7a4d;--pale:#c3cad1;
--f32:#dfe4e9;--f16:#bcd8f5;--i8:#c4e8c2;--pin:#ffd08a;--other:#fff;--edge:#8a939c}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa5b0;--line:#39424b;--page:#14181c;--card:#1d2329;
--good:#5fc795;--bad:#ff8a80;--c0:#ff8a80;--c1:#7db7f5;--c2:#e5b567;--c3:#cfa3ea;--c4:#5fc795;--pale:#4a545e;
--f32:#38424c;--f16:#1f4a78;--i8:#23532c;--pin:#7a4d0a;--other:#14181c;--edge:#7c8893}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:1080px;margin:2rem auto;
padding:0 1.25rem}
h1{font-size:1.6rem;margin:0}
h2{font-size:1.15rem;margin:2.4rem 0 .6rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.2rem 0 .4rem}
p{margin:.3rem 0}
.soft{color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:.75rem;margin:1.2rem 0}
.tile{background:var(--card);border-radius:8px;padding:.7rem .9rem}
.tile b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:.85rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th{text-align:left;color:var(--soft);font-weight:500;border-bottom:1px solid var(--line);padding:.25rem .8rem .25rem 0}
td{padding:.28rem .8rem .28rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code,.mono{font:.86em ui-monospace,monospace;overflow-wrap:break-word}
details summary{cursor:pointer;color:var(--soft)}
ul{margin:.3rem 0 .3rem 1.1rem;padding:0}
.bar{width:120px;height:10px;vertical-align:middle}
.bar .rest{fill:var(--line)}.bar .used{fill:var(--c1)}.bar .used.over{fill:var(--bad)}
.drift{display:block;width:100%;max-width:900px}
.grid{stroke:var(--line);stroke-width:1}
.mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3}
.tick{font:11px system-ui,sans-serif;fill:var(--soft)}.tick.end{text-anchor:end}.tick.middle{text-anchor:middle}
.curve{fill:none;stroke-width:1.6}.curve.pale{stroke:var(--pale);stroke-width:1}
.name{font:12px system-ui,sans-serif}.dot{fill:var(--c0)}
.curve.c0{stroke:var(--c0);stroke-width:2.2}.curve.c1{stroke:var(--c1)}.curve.c2{stroke:var(--c2)}
.curve.c3{stroke:var(--c3)}.curve.c4{stroke:var(--c4)}
.name.c0{fill:var(--c0)}.name.c1{fill:var(--c1)}.name.c2{fill:var(--c2)}.name.c3{fill:var(--c3)}.name.c4{fill:var(--c4)}
.histograms{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:1rem}
.histograms figure{margin:0;background:var(--card);border-radius:8px;padding:.7rem .9rem}
.histograms figcaption{font-size:.82rem;overflow-wrap:anywhere}
.histogram{width:100%}
.reference{fill:var(--pale)}.shipped{fill:none;stroke:var(--c0);stroke-width:1.4}
.legend span{display:inline-block;margin-right:1.2rem;font-size:.85rem}
.swatch{display:inline-block;width:1.1em;height:.8em;border:1px solid var(--edge);border-radius:2px;margin-right:.4em}
.swatch.right{background:var(--pale)}.swatch.got{background:var(--c0)}
.float32 rect,.swatch.float32{fill:var(--f32);background:var(--f32)}
.half rect,.swatch.half{fill:var(--f16);background:var(--f16)}
.int8 rect,.swatch.int8{fill:var(--i8);background:var(--i8)}
.pinned rect,.swatch.pinned{fill:var(--pin);background:var(--pin)}
.other rect,.swatch.other{fill:var(--other);background:var(--other)}
.node rect{stroke:var(--edge)}.node.pinned rect{stroke:var(--ink);stroke-width:2}
.map{max-height:640px;overflow:auto;border:1px solid var(--line);border-radius:8px}
.map svg{display:block;margin:0 auto;max-width:100%;height:auto}
.zoom{margin:.6rem .4rem .6rem 0}.zoom:checked+label+.map svg{max-width:none}
.map text{font:10px system-ui,sans-serif;text-anchor:middle;fill:var(--ink)}
.map .op{font-weight:600}.map .far{font-size:9px;fill:var(--c1)}
.map .edge{fill:none;stroke:var(--edge);stroke-width:1}
@media print{
:root{--ink:#000;--soft:#444;--line:#ccc;--page:#fff;--card:#f5f5f5;--good:#1f7a4d;--bad:#b3261e;--c0:#b3261e;
--c1:#2467b3;--c2:#8a5a00;--c3:#7a3f9d;--c4:#1f7a4d;--pale:#c3cad1;--f32:#dfe4e9;--f16:#bcd8f5;--i8:#c4e8c2;
--pin:#ffd08a;--other:#fff;--edge:#666}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{font-size:10pt;margin:0;max-width:none}
h2{break-after:avoid}.tile,figure,tr,.drift{break-inside:avoid}
.map{max-height:none;overflow:visible;border:0}.map svg{width:100%;height:auto;max-height:240mm}
.zoom,.zoom+label{display:none}
.wide{overflow:visible}
}
"""
