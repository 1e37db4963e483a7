//! Which fields, by number, are in a protobuf message?

/// The fields of a message that are left to read.
pub struct Fields<'a>(pub &'a [u8]);

#[derive(Clone, Copy)]
pub enum Datum<'a> {
    Varint(u64),
    Fixed(u64),
    /// Four bytes, which no field of Kubernetes has.
    Short,
    Bytes(&'a [u8]),
}

impl Datum<'_> {
    pub fn wire_type(self) -> u8 {
        match self {
            Datum::Varint(_) => 0,
            Datum::Fixed(_) => 1,
            Datum::Bytes(_) => 2,
            Datum::Short => 5,
        }
    }
}

impl<'a> Fields<'a> {
    pub fn next(&mut self) -> Result<Option<(u64, Datum<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, wire_type) = (tag >> 3, tag & 7);
        if number == 0 {
            return Err(format!("proto: illegal tag {number} (wire type {wire_type})"));
        }
        let datum = match wire_type {
            0 => Datum::Varint(self.varint()?),
            1 => Datum::Fixed(self.take(8)?.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| UNEXPECTED_END)?;
                Datum::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Datum::Short)?,
            // Groups: Kubernetes has none.
            _ => return Err(format!("proto: illegal wireType {wire_type}")),
        };
        Ok(Some((number, datum)))
    }

    pub fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(UNEXPECTED_END)?;
        self.0 = rest;
        Ok(taken)
    }
}

const UNEXPECTED_END: &str = "unexpected EOF";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_can_be_a_field_is_read_and_the_rest_refused() {
        let mut fields = Fields(b"\x08\x96\x01\x11\0\0\0\0\0\0\xf0?\x1a\x01z\x25abcd");
        assert!(matches!(fields.next(), Ok(Some((1, Datum::Varint(150))))));
        assert!(matches!(fields.next(), Ok(Some((2, Datum::Fixed(bits)))) if f64::from_bits(bits) == 1.0));
        assert!(matches!(fields.next(), Ok(Some((3, Datum::Bytes(b"z"))))));
        assert!(matches!(fields.next(), Ok(Some((4, Datum::Short)))));
        assert!(matches!(fields.next(), Ok(None)));
        for (bad, why) in [
            (&b"\x08"[..], UNEXPECTED_END),
            (b"\x0a\x02a", UNEXPECTED_END),
            (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", UNEXPECTED_END),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: integer overflow"),
            (b"\0\0", "proto: illegal tag 0 (wire type 0)"),
            (b"\x0b", "proto: illegal wireType 3"),
        ] {
            assert_eq!(Fields(bad).next().err().as_deref(), Some(why), "{bad:?}");
        }
    }
}
