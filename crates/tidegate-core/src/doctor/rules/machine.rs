//! The machine, where it is ours as well.

use super::{Judged, Missing, View, WELL, found, told};
use crate::watch::Severity;

fn elsewhere() -> Missing {
    Missing::Unseen("the server does not run on this machine, or its process may not be seen".to_owned())
}

pub(super) fn huge_pages(view: &View) -> Judged {
    let machine = &view.node.machine;
    let enabled = machine.huge_pages.as_deref().ok_or_else(elsewhere)?;
    if enabled != "always" || machine.huge_pages_refused == Some(true) {
        return WELL;
    }
    found(
        told(
            Severity::Warning,
            "the server gets huge pages: after a fork the first write to each copies 2 MiB, so that latency and memory jump with every \
             snapshot",
        )
        .with("transparent_hugepage", Some(enabled))
        .with("refused_by_server", machine.huge_pages_refused)
        .next(
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            "for every program of the machine, until it starts anew; then start the server anew. Or `disable-thp yes` in its configuration (6.2 \
             and newer)",
        ),
    )
}

pub(super) fn overcommit(view: &View) -> Judged {
    let mode = view.node.machine.overcommit.ok_or_else(elsewhere)?;
    if mode == 1 || !view.forks() {
        return WELL;
    }
    let what = if mode == 2 {
        "refuses a fork when it could need more than is free"
    } else {
        "may refuse a fork of a server that uses more than is free"
    };
    found(
        told(Severity::Warning, format!("vm.overcommit_memory is {mode}: the system {what}, and the snapshot fails"))
            .with("overcommit_memory", Some(mode))
            .next(
                "sudo sysctl vm.overcommit_memory=1",
                "for every program of the machine, until it starts anew (then /etc/sysctl.d): memory is given out that there may not be",
            ),
    )
}
