//! What the machine says of a server that runs on ours.

use std::fs;

use tidegate_core::watch::{Host, Info};

/// By how much what the server says of its resident memory may differ from what the system says of it, if it is the same process.
const ALIKE: u64 = 2;

/// What the system says of the server behind `info`; nothing where it cannot be the process of that number here.
pub(crate) fn seen(info: &Info) -> Host {
    let Some((pid, status)) = status(info) else { return Host::default() };
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    Host { swapped_bytes: kib(&status, "VmSwap:"), cgroup_bytes: cgroup.and_then(|groups| limit(&groups)) }
}

/// The number of the server's process, where it is one here.
pub(crate) fn process(info: &Info) -> Option<u64> {
    status(info).map(|(pid, _)| pid)
}

/// The same, and what the system says of it.
fn status(info: &Info) -> Option<(u64, String)> {
    let pid = info.number("process_id").filter(|pid| *pid > 1)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let (rss, told) = (kib(&status, "VmRSS:")?, info.number("used_memory_rss")?);
    (rss / ALIKE <= told && told / ALIKE <= rss).then_some((pid, status))
}

/// A line of `/proc/PID/status`, in bytes.
fn kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// The smallest limit of a control group and those above it, of either version.
fn limit(groups: &str) -> Option<u64> {
    let of = |line: &str| {
        let (kind, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match kind {
            "" => ("/sys/fs/cgroup", "memory.max"),
            kind if kind.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let mut limits = Vec::new();
        let mut path = path.trim_end_matches('/');
        loop {
            let bytes = fs::read_to_string(format!("{root}{path}/{file}")).ok();
            limits.extend(bytes.and_then(|bytes| bytes.trim().parse::<u64>().ok()));
            let Some((above, _)) = path.rsplit_once('/') else { break };
            path = above;
        }
        limits.into_iter().min()
    };
    groups.lines().filter_map(of).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_itself_is_looked_at() {
        let pid = std::process::id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let rss = kib(&status, "VmRSS:").unwrap();
        assert!(rss > 100_000, "{rss}");
        let told = |rss: u64| seen(&Info::parse(&format!("process_id:{pid}\r\nused_memory_rss:{rss}\r\n")));
        assert_eq!(told(rss).swapped_bytes, kib(&status, "VmSwap:"));
        assert_eq!([told(rss * 5), seen(&Info::parse("process_id:1\r\nused_memory_rss:1\r\n"))], [Host::default(); 2]);
        assert_eq!(limit("0::/no/such/group\n1:cpu:/x\nodd"), None.or(limit("0::/\n")));
    }
}
