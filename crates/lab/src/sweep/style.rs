//! The style of pages and drawings: one style for light and dark, with the system's fonts.
//!
//! Invariant: the style sheet loads no other file. The colours of lines follow the palette of Okabe and Ito ("Color
//! universal design", 2008), which people with colour blindness can distinguish. Each background has a lighter or
//! darker form of these colours. Lines whose colours are similar also differ by their dash or their place in the
//! legend.

/// The style sheet.
pub(crate) const STYLE: &str = "\
:root{color-scheme:light dark;--back:#fff;--text:#1c2024;--soft:#60646c;--rule:#e2e4e8;--fill:#f6f7f9;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#a8578f;--c4:#9a7400;--c5:#2f8fc4;--c6:#5a5a5a;--c7:#8a4b20}
@media(prefers-color-scheme:dark){:root{--back:#15171a;--text:#e6e8eb;--soft:#9ba1a8;--rule:#2e3237;--fill:#1d2024;
--c0:#58b4ec;--c1:#f28e4b;--c2:#3cc99b;--c3:#dc8fc3;--c4:#e0b83e;--c5:#8fd0f7;--c6:#b5b9be;--c7:#c98b5e}}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:19px;font-weight:600;margin:0 0 6px;overflow-wrap:anywhere}h2{font-size:16px;margin:32px 0 8px}
.note{color:var(--soft);max-width:80ch;margin:0 0 20px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:28px}
figure{margin:0}figcaption{font-weight:600;margin-bottom:4px}figure>svg{width:100%;height:auto;display:block}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:4px 0 0;padding:0;font-size:13px;color:var(--soft)}
.key{width:24px;height:8px;margin-right:6px;vertical-align:middle}
.grid{stroke:var(--rule);fill:none}.axis{stroke:var(--soft);fill:none}
.tick,.name{fill:var(--soft);font:11px system-ui,sans-serif}.name{font-size:12px}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}.dashed>.line{stroke-dasharray:5 4}
.bar{fill:currentColor}
.mark{fill:currentColor;stroke:var(--back);stroke-width:1.5}.reach{fill:transparent}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:4px 12px 4px 0;text-align:left;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--soft);font-weight:500}
details{border-bottom:1px solid var(--rule);padding:5px 0}summary{cursor:pointer}
pre{background:var(--fill);padding:10px 12px;overflow-x:auto;font-size:12px}
";
