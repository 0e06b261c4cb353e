//! The wire format of protobuf.

use std::borrow::Cow;

/// A decoded value, or an error with the path of fields and the text of Go's decoder.
pub(super) type Result<T> = std::result::Result<T, Cow<'static, str>>;

/// A value on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// No known type uses it.
    Fixed32,
}

impl<'a> Wire<'a> {
    pub(super) fn integer(self) -> Result<i64> {
        let Self::Varint(number) = self else { return Err(self.wrong()) };
        Ok(number.cast_signed())
    }

    pub(super) fn bytes(self) -> Result<&'a [u8]> {
        let Self::Bytes(bytes) = self else { return Err(self.wrong()) };
        Ok(bytes)
    }

    pub(super) fn text(self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|error| error.to_string().into())
    }

    pub(super) fn wrong(self) -> Cow<'static, str> {
        let wire = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        };
        format!("proto: wrong wireType = {wire}").into()
    }
}

/// The fields of a message in order, with their numbers. Iteration ends after an error.
pub(super) struct Parts<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = Result<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.read();
        if part.is_err() {
            self.0 = &[];
        }
        Some(part)
    }
}

impl<'a> Parts<'a> {
    fn read(&mut self) -> Result<(u64, Wire<'a>)> {
        let tag = varint(&mut self.0)?;
        let wire = match tag & 7 {
            0 => Wire::Varint(varint(&mut self.0)?),
            1 => Wire::Fixed64(self.take(8)?.iter().rfold(0, |bits, byte| bits << 8 | u64::from(*byte))),
            2 => {
                let length = varint(&mut self.0)?;
                Wire::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            other => return Err(format!("proto: illegal wireType {other}").into()),
        };
        Ok((tag >> 3, wire))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("unexpected EOF")?;
        self.0 = rest;
        Ok(taken)
    }
}

pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or("unexpected EOF")?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("proto: integer overflow".into())
}
