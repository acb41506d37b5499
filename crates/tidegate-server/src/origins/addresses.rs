//! Which addresses an origin may have: only public ones, unless its namespace says otherwise. Else whoever can write a DNS
//! record could make the server ask what only the server can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 that is not for everybody: (network, length of its prefix).
const CLOSED_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // this network, unspecified
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // behind a carrier's NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link-local; clouds' metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, broadcast
];

/// IPv6 within 2000::/3 that is not for everybody. Outside of it nothing is.
const CLOSED_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Whether `address` may be that of an origin anywhere.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let within = |(network, length): &(Ipv4Addr, u32)| {
        (address.to_bits() ^ network.to_bits()).checked_shr(32 - length).unwrap_or(0) == 0
    };
    !CLOSED_V4.iter().any(within)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match (a, b, c, d, e, f) {
        // Mapped (::ffff:a.b.c.d), translated (::ffff:0:a.b.c.d), and behind the well-known NAT64 prefix.
        (0, 0, 0, 0, 0, 0xffff) | (0, 0, 0, 0, 0xffff, 0) | (0x64, 0xff9b, 0, 0, 0, 0) => is_public_v4(v4(g, h)),
        // 6to4.
        (0x2002, ..) => is_public_v4(v4(b, c)),
        // Unspecified, loopback and IPv4-compatible, which nobody uses any more, are outside of it.
        _ if a & 0xe000 != 0x2000 => false,
        _ => !CLOSED_V6.iter().any(|(network, length)| (address.to_bits() ^ network.to_bits()) >> (128 - length) == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_public_and_what_is_not() {
        for (text, public) in [
            ("8.8.8.8", true),
            ("1.1.1.1", true),
            ("100.63.255.255", true),
            ("100.64.0.0", false),
            ("100.127.255.255", false),
            ("100.128.0.0", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("128.0.0.1", true),
            ("169.253.255.255", true),
            ("169.254.169.254", false),
            ("172.15.255.255", true),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("172.32.0.0", true),
            ("192.0.0.8", false),
            ("192.0.2.1", false),
            ("192.168.1.1", false),
            ("192.169.0.0", true),
            ("198.18.0.1", false),
            ("198.19.255.255", false),
            ("198.51.100.7", false),
            ("203.0.113.7", false),
            ("224.0.0.1", false),
            ("239.255.255.255", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("223.255.255.255", true),
            ("2606:4700:4700::1111", true),
            ("2001:4860:4860::8888", true),
            ("::", false),
            ("::1", false),
            ("::7f00:1", false),
            ("::8.8.8.8", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:8.8.8.8", true),
            ("::ffff:0:10.0.0.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b::8.8.8.8", true),
            ("64:ff9b:1::8.8.8.8", false),
            ("2002:7f00:1::", false),
            ("2002:a00:1::1", false),
            ("2002:808:808::1", true),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("3fff::1", false),
            ("fc00::1", false),
            ("fd12:3456::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("100::1", false),
            ("5f00::1", false),
            ("4000::1", false),
        ] {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(is_public(address), public, "{text}");
        }
    }
}
