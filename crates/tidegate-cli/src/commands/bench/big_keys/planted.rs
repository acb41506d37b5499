//! The keys that are looked at.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::commands::bench::redis::Redis;
use crate::failure::Result;

/// Small hashes at full scale.
const SMALL: u64 = 5_000_000;
/// Larger keys, of five types by turns; the n-th largest has 1/n of the largest's elements.
const LARGE: u64 = 300;
/// Elements of the largest.
const LARGEST: u64 = 200_000;
/// Keys, or elements, that one script makes.
const STEP: u64 = 5_000;
/// Scripts under way.
const AT_ONCE: usize = 4;

const SMALL_ONES: &str =
    "for i = ARGV[2], ARGV[3] do redis.call('HSET', ARGV[1] .. ':user:' .. i, 'name', 'user-' .. i, 'visits', i) end";
/// Elements from ARGV[3] to ARGV[4], of ARGV[5], of one larger key of the kind that ARGV[2] says.
const LARGE_ONE: &str = "
local key, kind, from, to = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if kind == 'string' then
  if from == 1 then redis.call('SET', key, string.rep('x', tonumber(ARGV[5]) * 40)) end
  return
end
for i = from, to do
  if kind == 'hash' then redis.call('HSET', key, 'field-' .. i, 'a value of some length ' .. i)
  elseif kind == 'list' then redis.call('RPUSH', key, 'an element of a list ' .. i)
  elseif kind == 'set' then redis.call('SADD', key, 'a member of a set ' .. i)
  else redis.call('ZADD', key, i, 'a member with a score ' .. i) end
end";

/// What was planted.
pub struct Planted {
    pub small: u64,
    pub large: u64,
    /// What the server uses with it.
    pub bytes: u64,
}

/// Plants the keys of a bench of this `scale` under `name`.
///
/// # Errors
/// [`Failure::Work`](crate::failure::Failure::Work).
pub async fn plant(redis: &Redis, name: &str, scale: f64) -> Result<Planted> {
    let small = ((SMALL as f64 * scale) as u64).max(STEP);
    let prefix = format!("tg:{name}");
    let make = async |(from, to): (u64, u64)| {
        redis.ask(&["EVAL", SMALL_ONES, "0", &prefix, &from.to_string(), &to.to_string()]).await.map(drop)
    };
    stream::iter(steps(small)).map(make).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    for n in 1..=LARGE {
        let kind = ["hash", "string", "zset", "list", "set"][usize::try_from(n).unwrap_or(0) % 5];
        let key = format!("{prefix}:{kind}:{n}");
        let size = (LARGEST / n).max(1);
        for (from, to) in steps(size) {
            let (from, to, size) = (from.to_string(), to.to_string(), size.to_string());
            redis.ask(&["EVAL", LARGE_ONE, "0", &key, kind, &from, &to, &size]).await?;
        }
    }
    Ok(Planted { small, large: LARGE, bytes: redis.used_memory().await? })
}

/// The numbers from 1 to `count`, those of one script each.
fn steps(count: u64) -> impl Iterator<Item = (u64, u64)> {
    (1..=count).step_by(usize::try_from(STEP).unwrap_or(1)).map(move |from| (from, (from + STEP - 1).min(count)))
}
