//! The largest keys by both routes, against `MEMORY USAGE key SAMPLES 0` of every key there is.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::failed;
use super::runs::{Look, Looks};
use crate::commands::bench::line::Line;
use crate::commands::bench::on_redis::Bench;
use crate::commands::bench::redis::Redis;
use crate::failure::Result;

/// So many are compared.
const TOP: usize = 100;
/// Keys below this size, bytes, are not told by the exhaustive check; there are more than a hundred above it.
const SMALLEST: &str = "2000";
/// A step of SCAN, and the keys of it that are not small with what they take.
const STEP: &str = "
local page = redis.call('SCAN', ARGV[1], 'COUNT', 1000)
local large = {page[1]}
for _, key in ipairs(page[2]) do
  local bytes = redis.call('MEMORY', 'USAGE', key, 'SAMPLES', '0')
  if bytes and bytes >= tonumber(ARGV[2]) then
    large[#large + 1] = key
    large[#large + 1] = bytes
  end
end
return large";

/// Measures.
pub fn measure(bench: &mut Bench<'_>, looks: &Looks) -> Result {
    let largest = bench.on_redis(async |redis| exhaustive(redis).await)?;
    if largest.len() < TOP {
        return Err(failed("recall", "there are fewer large keys than are compared"));
    }
    let sizes: Vec<u64> = largest.iter().map(|(bytes, _)| *bytes).collect();
    let want: BTreeSet<&str> = largest[..TOP].iter().map(|(_, key)| key.as_str()).collect();
    for look in [Look::Snapshot { fast: true }, Look::Scan] {
        let (seen, _) = looks.look(bench, look)?;
        let items = seen.report["items"].as_array().cloned().unwrap_or_default();
        let found = items.iter().take(TOP).filter_map(name).filter(|key| want.contains(key.as_str())).count();
        let text = format!("{}: of the {TOP} largest keys it has", look.name());
        bench.printer.line(Line::new(text, found as f64 * 100.0 / TOP as f64, "%"))?;
        let off = items.iter().take(TOP).filter_map(|item| {
            let (key, bytes) = (name(item)?, item["bytes"].as_u64()?);
            let (told, _) = largest.iter().find(|(_, known)| *known == key)?;
            Some((bytes as f64 / *told as f64 - 1.0).abs() * 100.0)
        });
        let off = off.fold(0.0, f64::max);
        bench.printer.line(Line::new("  the size that is furthest off what MEMORY USAGE says", off, "%"))?;
    }
    let text = format!("  the {TOP}th of them is larger than the next by");
    let gap = sizes.get(TOP).map_or(100.0, |next| (sizes[TOP - 1] as f64 / *next as f64 - 1.0) * 100.0);
    bench.printer.line(Line::new(text, gap, "%"))
}

fn name(item: &Value) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(item["key_base64"].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Every key that is not small, the largest first.
async fn exhaustive(redis: &Redis) -> Result<Vec<(u64, String)>> {
    let (mut cursor, mut large) = ("0".to_owned(), Vec::new());
    loop {
        let page = redis.ask(&["EVAL", STEP, "0", &cursor, SMALLEST]).await?.list();
        let mut parts = page.into_iter().map(|part| part.text());
        cursor = parts.next().unwrap_or_default();
        while let (Some(key), Some(bytes)) = (parts.next(), parts.next()) {
            large.push((bytes.parse().map_err(|e| failed("MEMORY USAGE", e))?, key));
        }
        if cursor == "0" {
            break;
        }
    }
    large.sort_by(|a, b| b.cmp(a));
    large.dedup();
    Ok(large)
}
