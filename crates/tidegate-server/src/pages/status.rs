//! `/`: whether it works, and what it is doing.

use tidegate::Readiness;

use super::{Page, escape};
use crate::app::App;

/// Keeps the page fresh: reads it again and takes over what changed.
const SCRIPT: &str = include_str!("status.js");

/// The page as things are now.
pub(crate) fn page(app: &App) -> Page {
    let (class, word, reasons) = match app.operations.readiness() {
        Readiness::Ready => ("ready", "Ready", Vec::new()),
        Readiness::Degraded(reasons) => ("degraded", "Degraded", reasons),
        Readiness::NotReady(reasons) => ("down", "Not ready", reasons),
    };
    let reasons: String = reasons.iter().map(|reason| format!("<li>{}</li>", escape(reason))).collect();
    let clock = app.operations.clock();
    let clock_kind = if clock.manual { "Ledger's clock (manual)" } else { "Ledger's clock" };
    let tiles: String = [
        (format!("<span class={class}>{word}</span>"), "Orders can be placed and paid"),
        (uptime(app.started.elapsed().as_secs()), "Up"),
        (app.operations.newest_event().borrow().to_string(), "Newest event"),
        (app.registry.in_flight().saturating_sub(1).to_string(), "Other requests in flight"),
        (app.registry.len().to_string(), "Open connections"),
        (app.open_streams().to_string(), "Event streams"),
        (crate::shape::instant::Instant(clock.now).to_string().replace('T', " "), clock_kind),
    ]
    .into_iter()
    .map(|(value, label)| {
        let class = if label == clock_kind { " class=long" } else { "" };
        format!("<div class=tile><b{class}>{value}</b><span>{label}</span></div>")
    })
    .collect();
    let body = format!(
        "<h1>Tidegate</h1><p class=soft>Version {}. Orders that are held, paid or cancelled on time; nothing oversold.</p>\
         <div id=live><div class=tiles>{tiles}</div><ul>{reasons}</ul></div>\
         <p><a href=/docs>API</a> · <a href=/openapi.json>OpenAPI</a> · <a href=/metrics>Metrics</a> · <a href=/readyz>Readiness</a></p>",
        env!("CARGO_PKG_VERSION"),
    );
    Page::new("Status", &body, SCRIPT)
}

fn uptime(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}
