//! The servers of a Cluster, by the text of `CLUSTER NODES`.

use crate::connect::Host;

/// A server of a Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) host: Host,
    /// Of a replica: its master's id.
    pub(crate) master: Option<String>,
    /// Slots that it serves.
    pub(crate) slots: u64,
    /// The others agree that it is gone.
    pub(crate) fails: bool,
}

/// Those that have an address. `asked` is who answered, which may not know its own name.
pub(crate) fn members(text: &str, asked: &Host) -> Vec<Member> {
    text.lines().filter_map(|line| member(line, asked)).collect()
}

fn member(line: &str, asked: &Host) -> Option<Member> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [id, address, flags, master, rest @ ..] = &fields[..] else { return None };
    let flags: Vec<&str> = flags.split(',').collect();
    if flags.iter().any(|flag| matches!(*flag, "noaddr" | "handshake")) {
        return None;
    }
    // `ip:port@bus,hostname`
    let (ip, port) = address.split(['@', ',']).next()?.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let name = if ip.is_empty() { &asked.name } else { ip };
    let is_master = flags.contains(&"master");
    Some(Member {
        id: (*id).to_owned(),
        host: Host { name: name.trim_matches(['[', ']']).to_owned(), port },
        master: (!is_master && *master != "-").then(|| (*master).to_owned()),
        // Behind the time of the last PING and PONG, the epoch and the state of the link.
        slots: if is_master { rest.iter().skip(4).map(|range| slots(range)).sum() } else { 0 },
        fails: flags.contains(&"fail"),
    })
}

/// Slots of `7`, `0-5460`; one on its way, in brackets, is its old server's.
fn slots(range: &str) -> u64 {
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) if from <= to => to - from + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_cluster() {
        let text = "a 10.0.0.1:7000@17000,host master - 0 0 1 connected 0-5460\n\
                    b :7001@17001 myself,master - 0 0 2 connected 5461-9000 9002 [9003->-a]\n\
                    c ::1:7002@17002 slave,fail a 0 0 3 disconnected\n\
                    d :0@0 master,noaddr - 0 0 4 disconnected\n\
                    e 10.0.0.9:7003@17003 handshake - 0 0 0 connected\n\
                    f 10.0.0.4:7004@17004 master,fail? - 0 0 5 connected\n\nodd\n";
        let asked = Host { name: "asked".to_owned(), port: 1 };
        let seen: Vec<_> =
            members(text, &asked).into_iter().map(|m| (m.id, m.host.address(), m.master, m.slots, m.fails)).collect();
        let of = |id: &str, address: &str, master: Option<&str>, slots, fails| {
            (id.to_owned(), address.to_owned(), master.map(str::to_owned), slots, fails)
        };
        let want = [
            of("a", "10.0.0.1:7000", None, 5_461, false),
            of("b", "asked:7001", None, 3_541, false),
            of("c", "[::1]:7002", Some("a"), 0, true),
            of("f", "10.0.0.4:7004", None, 0, false),
        ];
        assert_eq!(seen, want);
    }
}
