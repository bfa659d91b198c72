//! The figures as a picture: bars, one group a column, as plain SVG.

#![allow(clippy::format_push_string)] // a few hundred of them, once

use super::report::{Column, Row};

const COLUMNS: [Column; 4] =
    [Column::Million, Column::TwoMillion, Column::HandOver, Column::Memory];
const WIDTH: f64 = 760.0;
const LABEL: f64 = 230.0;
const BAR: f64 = 15.0;
const HEAD: f64 = 34.0;
/// Longer bars are cut here, and say how long they are.
const LONGEST: f64 = 500.0;

/// The picture.
pub fn svg(rows: &[Row]) -> String {
    let mut body = String::new();
    let mut y = 0.0;
    for column in COLUMNS {
        let unit = if column == Column::Memory { "bytes" } else { "ns a lock and unlock" };
        y += HEAD;
        body += &text(0.0, y - 10.0, "head", &format!("{} ({unit})", column.title()));
        for row in rows {
            let Some(figure) = row.figure(column) else { continue };
            let class = match (row.traits.ours, row.traits.floor) {
                (true, _) => "ours",
                (_, true) => "floor",
                _ => "peer",
            };
            let length = figure.min(LONGEST) / LONGEST * (WIDTH - LABEL - 60.0);
            body += &text(LABEL - 8.0, y + BAR - 4.0, "name", row.name);
            body += &format!(
                "<rect class=\"{class}\" x=\"{LABEL}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{:.1}\"/>\n",
                BAR - 3.0
            );
            let more = if figure > LONGEST { " …" } else { "" };
            body +=
                &text(LABEL + length + 6.0, y + BAR - 4.0, "value", &format!("{figure:.0}{more}"));
            y += BAR;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" font-family=\"sans-serif\">\n\
         <style>text{{font-size:11px;fill:#333}}.head{{font-size:13px;font-weight:bold}}\
         .name{{text-anchor:end}}.ours{{fill:#1a7f5a}}.peer{{fill:#9db2bf}}.floor{{fill:#d9c58b}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n",
        y + 12.0
    )
}

fn text(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n")
}
