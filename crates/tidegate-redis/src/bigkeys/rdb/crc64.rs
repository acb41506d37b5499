//! The checksum of snapshots: CRC-64 with the polynomial of Jones, reflected, without inversion; eight bytes a step.

/// The polynomial `0xad93d23594c935a9`, its bits in reverse.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
const TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The sum of whatever gave `sum`, and `bytes` behind it. Nothing has the sum 0.
pub(super) fn crc64(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = sum;
    let t = &TABLES;
    for word in words {
        let mixed = sum ^ u64::from_le_bytes(*word);
        let at = |byte: u32| (mixed >> (8 * byte) & 0xff) as usize;
        sum = t[7][at(0)]
            ^ t[6][at(1)]
            ^ t[5][at(2)]
            ^ t[4][at(3)]
            ^ t[3][at(4)]
            ^ t[2][at(5)]
            ^ t[1][at(6)]
            ^ t[0][at(7)];
    }
    rest.iter().fold(sum, |sum, byte| (sum >> 8) ^ TABLES[0][((sum ^ u64::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_that_redis_gives_as_its_own_test() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let bytes: Vec<u8> = (0..=255).cycle().take(1_003).collect();
        for cut in [0, 1, 7, 8, 9, 500, 1_003] {
            assert_eq!(crc64(crc64(0, &bytes[..cut]), &bytes[cut..]), crc64(0, &bytes), "{cut}");
        }
    }
}
