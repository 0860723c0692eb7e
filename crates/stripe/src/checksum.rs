//! CRC-32C: the checksum of iSCSI, ext4 and Btrfs. A label is read once for each connection, so a
//! table of one byte is fast enough.

/// The polynomial of Castagnoli, its bits in reverse.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// What each value of a byte becomes.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 0 { value >> 1 } else { value >> 1 ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// The checksum of some bytes. O(bytes).
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)];
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of CRCs, and RFC 3720, appendix B.4.
    #[test]
    fn known_answers() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    }
}
