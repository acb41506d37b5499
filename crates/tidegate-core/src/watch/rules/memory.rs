//! How much memory there is, and where it goes.

use super::super::finding::{Severity, Told, bytes, percent, rounded};
use super::super::settings::Purpose;
use super::{Measure, View, WELL};

const MIB: u64 = 1 << 20;
/// Less than this between resident and used memory is no matter, whatever the ratio.
const MUCH: u64 = 100 * MIB;
/// A pause of a fork that is as bad as a fork without memory, milliseconds.
const LONG_FORK_MS: f64 = 1_000.0;
/// From here on memory that nothing evicts is no matter for tomorrow.
const NEARLY_FULL: f64 = 0.95;
/// Where fewer keys than this share may be evicted, evictions do not keep memory from being full.
const FEW: f64 = 0.1;

/// Where memory lies that is resident and not used.
struct Waste {
    /// Resident and not used, in all.
    all: u64,
    /// Holes between allocations.
    holes: Option<u64>,
    /// Pages the allocator keeps.
    kept: Option<u64>,
    /// Outside the allocator.
    outside: Option<u64>,
}

fn is_libc(view: &View) -> bool {
    view.info.text("mem_allocator").is_some_and(|name| name.starts_with("libc"))
}

fn waste(view: &View) -> Option<Waste> {
    let number = |name: &str| view.info.number(name);
    let (used, rss) = (number("used_memory")?, number("used_memory_rss")?);
    // Not `allocator_frag_bytes`: since Redis 7.4 it speaks of small allocations alone, so that the same heap would be judged
    // in two ways. libc's allocator tells nothing that could be divided.
    let of = |name: &str| number(name).filter(|_| !is_libc(view));
    let (allocated, active) = (of("allocator_allocated"), of("allocator_active"));
    let resident = of("allocator_resident");
    let between = |more: Option<u64>, less: Option<u64>| Some(more?.saturating_sub(less?));
    Some(Waste {
        all: rss.saturating_sub(used),
        holes: between(active, allocated),
        kept: between(resident, active),
        outside: between(Some(rss), resident),
    })
}

/// Resident against used memory, where it is much in bytes as well.
pub(in super::super) fn fragmentation(view: &View) -> Measure {
    let (Some(used), Some(waste)) = (view.info.number("used_memory"), waste(view)) else { return Measure::Unknown };
    if waste.all < MUCH || used == 0 {
        return WELL;
    }
    if used < view.settings.min_size {
        // A ratio says nothing here. Memory that is still held does not make what was found untrue.
        return Measure::Between;
    }
    Measure::Level((used + waste.all) as f64 / used as f64)
}

pub(in super::super) fn tell_fragmentation(view: &View, level: f64) -> Told {
    let waste = waste(view);
    let part = |of: fn(&Waste) -> Option<u64>| waste.as_ref().and_then(of);
    let (all, holes) = (waste.as_ref().map_or(0, |w| w.all), part(|w| w.holes));
    let largest = [part(|w| w.kept), part(|w| w.outside)].into_iter().flatten().max();
    let config = &view.answer.config;
    let ratio = format!("{} more is resident than is used (ratio {level:.2})", bytes(all));
    let growing = view.known.waste_before.map(|before| all > before + before / 20);
    let told = if is_libc(view) {
        Told::new(
            Severity::Warning,
            format!("{ratio}. The allocator is libc: it cannot say where, and does not give it back by command"),
        )
        .next(
            view.cli("INFO memory"),
            "reads only. What is lost comes back with a restart or a failover to a replica: without a replica the server is away \
             meanwhile, and keeps only what it has saved",
        )
    } else if holes >= largest {
        let told = Told::new(Severity::Warning, format!("{ratio}, most of it in holes between allocations"));
        match (config.can_defrag, config.active_defrag) {
            (Some(true), Some(true)) => told.next(
                view.cli("CONFIG GET active-defrag*"),
                "reads only. Defragmentation is on and does not keep up: raise active-defrag-cycle-max, which costs that share of a core",
            ),
            (Some(true), _) => told.next(
                view.set("activedefrag", "yes"),
                "it takes 1 to 25 % of the server's core while it runs; `CONFIG SET activedefrag no` ends it",
            ),
            (Some(false), _) => told.next(
                view.cli("MEMORY PURGE"),
                "it stops the server for some milliseconds and gives back little of this: this build cannot defragment. A restart, or a \
                 failover to a replica, does",
            ),
            (None, _) => told.next(
                view.cli("MEMORY PURGE"),
                "it stops the server for some milliseconds. Whether this server can defragment is not known: `CONFIG SET \
                 activedefrag yes` says so. A restart, or a failover to a replica, gives everything back",
            ),
        }
    } else if part(|w| w.kept) == largest && largest.is_some() {
        Told::new(
            Severity::Warning,
            format!("{ratio}, most of it pages that the allocator keeps; defragmentation would not help"),
        )
        .next(view.cli("MEMORY PURGE"), "it stops the server for some milliseconds for each 100 MiB it gives back")
    } else if largest.is_some() {
        Told::new(
            Severity::Warning,
            format!("{ratio}, most of it outside the allocator (scripts, modules, huge pages); defragmentation would not help"),
        )
        .next(
            view.cli("MEMORY PURGE"),
            "it stops the server for some milliseconds. If it gives nothing back, look at huge pages \
             (/sys/kernel/mm/transparent_hugepage/enabled) and at modules",
        )
    } else {
        Told::new(Severity::Warning, format!("{ratio}; the server does not say where"))
            .next(view.cli("MEMORY PURGE"), "it stops the server for some milliseconds for each 100 MiB it gives back")
    };
    told.with("used_bytes", view.info.number("used_memory"))
        .with("rss_bytes", view.info.number("used_memory_rss"))
        .with("ratio", Some(rounded(level)))
        .with("wasted_bytes", Some(all))
        .with("holes_bytes", holes)
        .with("kept_by_allocator_bytes", part(|w| w.kept))
        .with("outside_allocator_bytes", part(|w| w.outside))
        .with("allocator", view.info.text("mem_allocator"))
        .with("can_defragment", config.can_defrag)
        .with("growing", growing)
}

/// Under a policy that evicts only keys with a time to live, the share of keys that have one, if it is small: hardly anything may be
/// evicted then.
fn few_to_evict(view: &View) -> Option<f64> {
    let is_volatile = view.evicts() == Some(true) && view.policy().is_some_and(|policy| policy.starts_with("volatile"));
    let share = view.facts.expires.zip(view.facts.keys).map(|(expires, keys)| expires as f64 / keys.max(1) as f64);
    share.filter(|share| is_volatile && *share < FEW)
}

/// Whether being full is how this server is meant to be.
fn is_meant_to_be_full(view: &View) -> bool {
    if view.evicts() != Some(true) {
        return false;
    }
    match view.purpose {
        Purpose::Cache => true,
        Purpose::Shared => few_to_evict(view).is_none(),
        Purpose::State => false,
    }
}

pub(in super::super) fn pressure_of_memory(view: &View) -> Measure {
    if is_meant_to_be_full(view) { WELL } else { view.pressure().into() }
}

fn with_memory(told: Told, view: &View, level: f64) -> Told {
    let (limit, source) = view.limit().unzip();
    told.with("pressure", Some(rounded(level)))
        .with("used_bytes", view.info.number("used_memory"))
        .with("rss_bytes", view.info.number("used_memory_rss"))
        .with("not_counted_bytes", view.info.number("mem_not_counted_for_evict"))
        .with("limit_bytes", limit)
        .with("limit_source", source)
        .with("policy", view.policy())
        .with("keys", view.facts.keys)
}

pub(in super::super) fn tell_pressure(view: &View, level: f64) -> Told {
    let few = few_to_evict(view);
    let evicts = view.evicts() == Some(true) && few.is_none();
    let (limit, source) = view.limit().unwrap_or_default();
    let policy = view.policy().unwrap_or("unknown");
    let severity = if level >= NEARLY_FULL && !evicts { Severity::Critical } else { Severity::Warning };
    let what = match source {
        "maxmemory" if evicts => "keys of a server that holds state will be evicted".to_owned(),
        "maxmemory" => match few {
            Some(0.0) => format!(
                "nothing can be evicted ({policy} evicts only keys with a time to live, and no key has one), so that writes will be refused"
            ),
            Some(share) => format!(
                "only {:.1} % of the keys can be evicted ({policy} evicts only those with a time to live): once they are gone, writes will \
                 be refused",
                share * 100.0
            ),
            None => "nothing is evicted, so that writes will be refused".to_owned(),
        },
        _ => "no maxmemory is set, so that the system will kill the server".to_owned(),
    };
    let cause = format!("{} of {} ({source}) is used; when it is full, {what}", percent(level), bytes(limit));
    let told = with_memory(Told::new(severity, cause), view, level);
    let rss = view.info.number("used_memory_rss").unwrap_or_default();
    let room = view.info.number("total_system_memory").map(|host| host.saturating_sub(rss));
    let more = view.more_memory();
    match (source, room) {
        // A fork may need as much again as the server has.
        ("maxmemory", Some(room)) if room > rss.saturating_add(more.saturating_sub(limit)) => {
            told.next(view.set("maxmemory", &more.to_string()), format!(
                "a quarter more, {}: the machine has {} free of this server's view; other programs on it are not seen. Look for what \
                 fills it first",
                bytes(more),
                bytes(room)
            ))
        }
        _ => told.next(
            view.own_tool("big-keys"),
            "it reads every key once, a replica's if there is one, and changes nothing: the largest, and what each prefix takes",
        ),
    }
}

pub(in super::super) fn full(view: &View) -> Measure {
    let refused = super::super::facts::grown(view.facts.out_of_memory, view.before.and_then(|b| b.out_of_memory));
    if refused.is_some_and(|count| count > 0) {
        return Measure::Level(view.pressure().unwrap_or(1.0).max(1.0));
    }
    match (view.info.number("maxmemory"), view.policy()) {
        (Some(0), _) => WELL,
        (Some(_), Some("noeviction")) => view.pressure().into(),
        (Some(_), Some(_)) => WELL,
        _ => Measure::Unknown,
    }
}

pub(in super::super) fn tell_full(view: &View, level: f64) -> Told {
    let refused = super::super::facts::grown(view.facts.out_of_memory, view.before.and_then(|b| b.out_of_memory));
    let limit = view.info.number("maxmemory").unwrap_or_default();
    let failing = match refused {
        Some(count) if count > 0 => format!("writes fail: {count} were refused since the last look"),
        _ if level >= NEARLY_FULL => "the next writes will be refused".to_owned(),
        // Whoever set a low threshold wants to know early.
        _ => "writes will be refused once it is full".to_owned(),
    };
    let nothing = match view.policy() {
        Some("noeviction") | None => "evicts nothing",
        Some(_) => "finds nothing that it may evict",
    };
    let cause =
        format!("{} of maxmemory ({}) is used and the server {nothing}: {failing}", percent(level), bytes(limit));
    let told = with_memory(Told::new(Severity::Critical, cause), view, level).with("refused", refused);
    match view.purpose {
        Purpose::Cache => told.next(
            view.set("maxmemory-policy", "allkeys-lru"),
            "keys that were not read for long go from now on; right for a cache, wrong where state lies beside it",
        ),
        Purpose::State | Purpose::Shared => told.next(
            view.set("maxmemory", &view.more_memory().to_string()),
            format!(
                "a quarter more, {}: it must fit into the machine, with room for a fork. Delete what is not needed with UNLINK",
                bytes(view.more_memory())
            ),
        ),
    }
}

/// What a fork may cost in memory: the largest copy that one has made, or a tenth.
fn copy_on_write(view: &View) -> u64 {
    let number = |name: &str| view.info.number(name).unwrap_or_default();
    let seen = ["rdb_last_cow_size", "aof_last_cow_size", "current_cow_peak", "module_fork_last_cow_size"].map(number);
    seen.into_iter().max().unwrap_or_default().max(number("used_memory_rss") / 10)
}

fn fork_ms(view: &View) -> Option<f64> {
    view.info.number("latest_fork_usec").map(|us| us as f64 / 1_000.0)
}

/// The machine's memory; `maxmemory` does not bound a fork.
fn machine(view: &View) -> Option<u64> {
    let host = view.info.number("total_system_memory").filter(|bytes| *bytes > 0);
    [host, view.answer.host.cgroup_bytes].into_iter().flatten().min()
}

/// Whether this server forks at all.
fn forks(view: &View) -> bool {
    let config = &view.answer.config;
    let saves = config.save.as_ref().is_some_and(|points| !points.is_empty());
    let has = |name: &str| view.info.number(name).is_some_and(|n| n > 0);
    saves || has("total_forks") || has("latest_fork_usec") || has("aof_enabled") || has("connected_slaves")
}

pub(in super::super) fn fork_headroom(view: &View) -> Measure {
    let (Some(rss), Some(machine)) = (view.info.number("used_memory_rss"), machine(view)) else {
        return Measure::Unknown;
    };
    if !forks(view) || rss < view.settings.min_size {
        return WELL;
    }
    let memory = rss.saturating_add(copy_on_write(view)) as f64 / machine as f64;
    Measure::Level(memory.max(fork_ms(view).unwrap_or_default() / LONG_FORK_MS))
}

pub(in super::super) fn tell_fork_headroom(view: &View, level: f64) -> Told {
    let rss = view.info.number("used_memory_rss").unwrap_or_default();
    let (copy, machine) = (copy_on_write(view), machine(view).unwrap_or_default());
    let ms = fork_ms(view).unwrap_or_default();
    let told = if ms / LONG_FORK_MS >= level {
        Told::new(
            Severity::Warning,
            format!("the last fork (for a snapshot, a rewrite or a replica) stopped the server for {ms:.0} ms; the next one will, too"),
        )
        .next(
            "cat /sys/kernel/mm/transparent_hugepage/enabled",
            "reads only. Huge pages make forks dear (`echo never` there); else keep less in one server, or save on a replica",
        )
    } else {
        let cause = format!(
            "the server has {} resident and a fork copies about {} more, of {} in all: the next snapshot, rewrite or new replica may fail, \
             or have the system kill the server",
            bytes(rss),
            bytes(copy),
            bytes(machine)
        );
        Told::new(Severity::Warning, cause).next(
            view.cli("INFO persistence"),
            "reads only. Give the machine memory, lower maxmemory, or save on a replica",
        )
    };
    told.with("rss_bytes", Some(rss))
        .with("copy_on_write_bytes", Some(copy))
        .with("machine_bytes", Some(machine))
        .with("last_fork_ms", fork_ms(view).map(rounded))
        .with("share", Some(rounded(level)))
}

fn swapped(view: &View) -> Option<(u64, u64)> {
    let (used, rss) = (view.info.number("used_memory")?, view.info.number("used_memory_rss")?);
    // Memory that was asked for and never touched is not resident either: where the system says what lies on disk, it counts.
    let swapped = view.answer.host.swapped_bytes.unwrap_or_else(|| used.saturating_sub(rss));
    Some((swapped, used))
}

pub(in super::super) fn swapping(view: &View) -> Measure {
    let Some((swapped, used)) = swapped(view) else { return Measure::Unknown };
    if swapped < view.settings.min_size || used == 0 { WELL } else { Measure::Level(swapped as f64 / used as f64) }
}

pub(in super::super) fn tell_swapping(view: &View, level: f64) -> Told {
    let (swapped, _) = swapped(view).unwrap_or_default();
    let sure = view.answer.host.swapped_bytes.is_some();
    let cause = if sure {
        format!("{} of the server's memory lies on disk: commands that touch it wait for the disk", bytes(swapped))
    } else {
        format!(
            "{} of the used memory is not resident: it lies on disk (swap), or was never touched (large empty bitmaps). Commands that touch \
             what lies on disk wait for it",
            bytes(swapped)
        )
    };
    Told::new(Severity::Warning, cause)
        .with("swapped_bytes", Some(swapped))
        .with("seen_on_the_machine", Some(sure))
        .with("share", Some(rounded(level)))
        .with("used_bytes", view.info.number("used_memory"))
        .with("rss_bytes", view.info.number("used_memory_rss"))
        .next(
            format!("grep VmSwap /proc/{}/status", view.info.text("process_id").unwrap_or("PID")),
            "reads only; on the server's machine. Free memory there, then `swapoff` and `swapon`; that reads everything back at once",
        )
}
