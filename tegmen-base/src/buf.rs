//! Byte buffers: a reader, a writer, and a datagram under construction. No function of this module can panic.

/// The input ends before the value ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncated;

/// The value does not fit the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Copies `from` to the front of `to`.
///
/// # Errors
/// [`Full`] if `from` does not fit. No byte is then copied.
#[cfg_attr(target_pointer_width = "64", inline)]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub fn copy(to: &mut [u8], from: &[u8]) -> Result<(), Full> {
    to.get_mut(..from.len()).ok_or(Full)?.copy_from_slice(from);
    Ok(())
}

/// Moves the last bytes of `bytes`, which begin at position `from`, towards the front: after the move they begin at
/// position `to`. The position `to` is at most `from`. Returns the number of moved bytes. Moves the bytes one by one,
/// because `copy_within` can panic, and would add the code of a panic to the image of a mote.
#[inline(never)]
pub fn shift_left(bytes: &mut [u8], from: usize, to: usize) -> usize {
    let len = bytes.len().saturating_sub(from);
    if from > to {
        for i in 0..len {
            let byte = bytes.get(from.wrapping_add(i)).copied().unwrap_or(0);
            if let Some(place) = bytes.get_mut(to.wrapping_add(i)) {
                *place = byte;
            }
        }
    }
    len
}

/// Reads big-endian values from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'r> {
    rest: &'r [u8],
}

impl<'r> Reader<'r> {
    /// Starts at the first byte.
    pub const fn new(bytes: &'r [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that are not read yet.
    pub const fn rest(&self) -> &'r [u8] {
        self.rest
    }

    /// Returns true if all bytes have been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads `N` bytes, and returns them as a reference to the input.
    #[inline]
    pub fn array_ref<const N: usize>(&mut self) -> Result<&'r [u8; N], Truncated> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        self.array_ref().copied()
    }

    /// Reads `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'r [u8], Truncated> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        let (&head, rest) = self.rest.split_first().ok_or(Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads three bytes.
    #[inline]
    pub fn u24(&mut self) -> Result<u32, Truncated> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Reads four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a length of one byte, and then that number of bytes. Returns the bytes after the length.
    #[inline]
    pub fn with_len8(&mut self) -> Result<&'r [u8], Truncated> {
        let len = self.u8()?;
        self.take(len.into())
    }

    /// Reads a length of two bytes, and then that number of bytes. Returns the bytes after the length.
    #[inline]
    pub fn with_len16(&mut self) -> Result<&'r [u8], Truncated> {
        let len = self.u16()?;
        self.take(len.into())
    }
}

/// Writes big-endian values one after the other into a slice.
#[derive(Debug)]
pub struct Writer<'t> {
    storage: &'t mut [u8],
    len: usize,
}

impl<'t> Writer<'t> {
    /// Starts at the first byte of `storage`.
    pub const fn new(storage: &'t mut [u8]) -> Self {
        Self { storage, len: 0 }
    }

    /// Returns the number of bytes written.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true before the first byte is written.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes written.
    pub fn written(&self) -> &[u8] {
        self.storage.get(..self.len).unwrap_or(&[])
    }

    /// Returns the bytes written. The caller can change these bytes in place.
    pub fn written_mut(&mut self) -> &mut [u8] {
        self.storage.get_mut(..self.len).unwrap_or(&mut [])
    }

    /// Returns the bytes written, with the lifetime of the storage.
    pub fn finish(self) -> &'t mut [u8] {
        let Self { storage, len } = self;
        storage.get_mut(..len).unwrap_or(&mut [])
    }

    /// Writes `bytes`.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let room = self.storage.get_mut(self.len..).ok_or(Full)?;
        copy(room, bytes)?;
        self.len = self.len.wrapping_add(bytes.len());
        Ok(())
    }

    /// Writes one byte.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn u8(&mut self, value: u8) -> Result<(), Full> {
        *self.storage.get_mut(self.len).ok_or(Full)? = value;
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Writes two bytes.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn u16(&mut self, value: u16) -> Result<(), Full> {
        self.put(&value.to_be_bytes())
    }

    /// Writes the low three bytes of `value`.
    pub fn u24(&mut self, value: u32) -> Result<(), Full> {
        let [_, a, b, c] = value.to_be_bytes();
        self.put(&[a, b, c])
    }

    /// Writes four bytes.
    pub fn u32(&mut self, value: u32) -> Result<(), Full> {
        self.put(&value.to_be_bytes())
    }

    /// Writes the length of `bytes` in one byte, and then `bytes`.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn with_len8(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.u8(u8::try_from(bytes.len()).map_err(|_| Full)?)?;
        self.put(bytes)
    }

    /// Writes a length of `N` bytes (one, two or three), followed by that number of bytes, which `body` writes.
    pub fn behind_len<const N: usize>(&mut self, body: impl FnOnce(&mut Self) -> Result<(), Full>) -> Result<(), Full> {
        let at = self.len;
        self.put(&[0; N])?;
        body(self)?;
        let len = self.len.wrapping_sub(at).wrapping_sub(N) as u32;
        let bytes = len.to_be_bytes();
        let (zeros, bytes) = bytes.split_last_chunk::<N>().ok_or(Full)?;
        if zeros.iter().any(|byte| *byte != 0) {
            return Err(Full);
        }
        copy(self.storage.get_mut(at..).ok_or(Full)?, bytes)
    }

    /// Inserts `bytes` at position `at`. The bytes that were written from this position on come after them.
    ///
    /// # Errors
    /// [`Full`] if the storage ends, or if fewer than `at` bytes were written. Nothing changes then.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn insert(&mut self, at: usize, bytes: &[u8]) -> Result<(), Full> {
        let end = self.len.checked_add(bytes.len()).ok_or(Full)?;
        let room = self.storage.get_mut(at..end).ok_or(Full)?;
        // In this form the compiler sees that `copy_within` cannot panic.
        let moved = room.len().checked_sub(bytes.len()).ok_or(Full)?;
        room.copy_within(..moved, bytes.len());
        room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        self.len = end;
        Ok(())
    }

    /// Removes everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Writes `bytes`, and returns the written copy, which the caller can change in place.
    pub fn put_and_lend(&mut self, bytes: &[u8]) -> Result<&mut [u8], Full> {
        let at = self.len;
        self.put(bytes)?;
        self.storage.get_mut(at..self.len).ok_or(Full)
    }

    /// Writes the length of `bytes` in two bytes, and then `bytes`.
    pub fn with_len16(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.u16(u16::try_from(bytes.len()).map_err(|_| Full)?)?;
        self.put(bytes)
    }
}

/// A buffer that is written from its end to its front.
pub struct Headroom<'t> {
    room: &'t mut [u8],
    /// Number of bytes that are still free.
    left: usize,
    full: bool,
}

impl<'t> Headroom<'t> {
    /// Starts at the end of `room`.
    pub const fn new(room: &'t mut [u8]) -> Self {
        let left = room.len();
        Self { room, left, full: false }
    }

    /// Writes a byte in front of the bytes that are already written. If the byte does not fit, it is left out, and
    /// [`Self::finish`] reports this.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        let left = self.left.wrapping_sub(1);
        match self.room.get_mut(left) {
            Some(place) => {
                *place = byte;
                self.left = left;
            }
            None => self.full = true,
        }
    }

    /// Writes bytes in front of the bytes that are already written, one by one. Use this function for short fields: for
    /// a few bytes, this loop costs less than a call of a function that copies memory.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn put(&mut self, bytes: &[u8]) {
        let mut left = self.left;
        for byte in bytes.iter().rev() {
            left = left.wrapping_sub(1);
            let Some(place) = self.room.get_mut(left) else {
                self.full = true;
                return;
            };
            *place = *byte;
        }
        self.left = left;
    }

    /// Returns the number of bytes that are still free.
    pub const fn left(&self) -> usize {
        self.left
    }

    /// Returns the number of bytes that are still free.
    ///
    /// # Errors
    /// [`Full`] if some bytes did not fit.
    pub const fn finish(self) -> Result<usize, Full> {
        if self.full { Err(Full) } else { Ok(self.left) }
    }
}

/// The position and the length of some bytes in a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    start: u16,
    len: u16,
}

impl Span {
    /// Returns the position and the length of `part` in the datagram that begins at address `datagram` of the memory.
    #[inline]
    pub fn within(datagram: usize, part: &[u8]) -> Self {
        Self { start: part.as_ptr().addr().wrapping_sub(datagram) as u16, len: part.len() as u16 }
    }

    /// Returns the bytes of `datagram` at this position, or no bytes if the datagram is shorter.
    #[inline]
    pub fn of(self, datagram: &[u8]) -> &[u8] {
        let (start, len) = (usize::from(self.start), usize::from(self.len));
        datagram.get(start..start.wrapping_add(len)).unwrap_or(&[])
    }

    /// Returns the bytes of `datagram` at this position, or no bytes if the datagram is shorter. The caller can change
    /// these bytes in place.
    #[inline]
    pub fn of_mut(self, datagram: &mut [u8]) -> &mut [u8] {
        let (start, len) = (usize::from(self.start), usize::from(self.len));
        datagram.get_mut(start..start.wrapping_add(len)).unwrap_or(&mut [])
    }
}

/// A datagram under construction, with free bytes in front for headers, and at the end for tags.
#[derive(Debug)]
pub struct Frame<'t> {
    storage: &'t mut [u8],
    start: usize,
    end: usize,
}

impl<'t> Frame<'t> {
    /// Makes an empty frame. Its first byte comes after `headroom` bytes of `storage`.
    pub fn new(storage: &'t mut [u8], headroom: usize) -> Self {
        let start = headroom.min(storage.len());
        Self { storage, start, end: start }
    }

    /// Makes a frame around the existing bytes of `storage` from `start` to `end`.
    pub fn around(storage: &'t mut [u8], start: usize, end: usize) -> Self {
        let end = end.min(storage.len());
        Self { storage, start: start.min(end), end }
    }

    /// Returns the number of bytes in the frame.
    pub const fn len(&self) -> usize {
        self.end.wrapping_sub(self.start)
    }

    /// Returns true if the frame contains no byte.
    pub const fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Returns the number of bytes that can still be appended.
    pub const fn room(&self) -> usize {
        self.storage.len().wrapping_sub(self.end)
    }

    /// Returns two positions in the storage: the position of the first byte of the frame, and the position after its
    /// last byte.
    pub const fn place(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    /// Splits the frame at the byte `at`. Returns the bytes before `at`, with all free bytes in front of them, and the
    /// bytes from `at` to the end of the frame.
    pub fn split(&mut self, at: usize) -> Option<(&mut [u8], &mut [u8])> {
        self.storage.get_mut(..self.end)?.split_at_mut_checked(self.start.checked_add(at)?)
    }

    /// Extends the frame by the next `len` bytes of the storage, and returns these bytes. Does not change the bytes.
    ///
    /// # Errors
    /// [`Full`] if the storage ends.
    #[inline]
    pub fn extend(&mut self, len: usize) -> Result<&mut [u8], Full> {
        let room = self.storage.get_mut(self.end..).and_then(|room| room.get_mut(..len)).ok_or(Full)?;
        self.end = self.end.wrapping_add(len);
        Ok(room)
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`Full`] if the storage ends. No byte is then written.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let room = self.storage.get_mut(self.end..).and_then(|room| room.get_mut(..bytes.len()));
        room.ok_or(Full)?.copy_from_slice(bytes);
        self.end = self.end.wrapping_add(bytes.len());
        Ok(())
    }

    /// Extends the frame by `before` bytes in front and `behind` bytes at its end. Does not change these bytes. Returns
    /// all bytes of the frame.
    ///
    /// # Errors
    /// [`Full`] if the storage has fewer free bytes in front or at the end. The frame then does not change.
    #[inline]
    pub fn widen(&mut self, before: usize, behind: usize) -> Result<&mut [u8], Full> {
        let start = self.start.checked_sub(before).ok_or(Full)?;
        let end = self.end.saturating_add(behind);
        let bytes = self.storage.get_mut(start..end).ok_or(Full)?;
        (self.start, self.end) = (start, end);
        Ok(bytes)
    }

    /// Lets `write` append through a [`Writer`]. The appended bytes are kept only if `write` succeeds.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn append_with<E>(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut writer = Writer::new(self.storage.get_mut(self.end..).unwrap_or(&mut []));
        write(&mut writer)?;
        let len = writer.len();
        self.end = self.end.wrapping_add(len);
        Ok(())
    }

    /// Replaces `removed` bytes at position `at`, counted from the front of the frame, by `bytes`.
    ///
    /// # Errors
    /// [`Full`] if the storage ends, or if the frame ends before `at + removed`. The frame then does not change.
    pub fn splice(&mut self, at: usize, removed: usize, bytes: &[u8]) -> Result<(), Full> {
        let tail = at.checked_add(removed).filter(|tail| *tail <= self.len()).ok_or(Full)?;
        let moved = self.len().wrapping_sub(tail);
        let new_tail = at.checked_add(bytes.len()).ok_or(Full)?;
        let len = new_tail.checked_add(moved).ok_or(Full)?;
        let room =
            self.storage.get_mut(self.start..).and_then(|room| room.get_mut(..len.max(tail.wrapping_add(moved))));
        let room = room.ok_or(Full)?;
        // Moves the bytes one by one, beginning at the end that the move does not overwrite. `copy_within` can panic,
        // and would add the code of a panic to the image of a mote. The moved bytes are few, or took longer to arrive
        // than to move.
        let mut shift = |i: usize| {
            if let (Some(from), Some(to)) = (tail.checked_add(i), new_tail.checked_add(i))
                && let Some(byte) = room.get(from).copied()
                && let Some(place) = room.get_mut(to)
            {
                *place = byte;
            }
        };
        match new_tail > tail {
            true => (0..moved).rev().for_each(&mut shift),
            false => (0..moved).for_each(&mut shift),
        }
        copy(room.get_mut(at..).ok_or(Full)?, bytes)?;
        self.end = self.start.wrapping_add(len);
        Ok(())
    }

    /// Returns a frame over the same bytes, to which a writer can append. The writer cannot use the last `len` bytes of
    /// the storage. After writing, pass the end of the returned frame to [`Self::end_at`], so that this frame gets the
    /// written bytes.
    pub fn reserving(&mut self, len: usize) -> Frame<'_> {
        let limit = self.storage.len().saturating_sub(len).max(self.end);
        Frame::around(self.storage.get_mut(..limit).unwrap_or(&mut []), self.start, self.end)
    }

    /// Extends the frame over bytes that were written into its free space, up to `end`, counted from the first byte of
    /// the storage.
    pub fn end_at(&mut self, end: usize) {
        self.end = end.min(self.storage.len()).max(self.start);
    }

    /// Moves the start of an empty frame by `len` bytes towards the end of the storage, so that there are `len` more
    /// free bytes before the frame. Does nothing if the frame is not empty, or if the storage has fewer free bytes.
    pub const fn indent(&mut self, len: usize) {
        if self.is_empty() && len <= self.room() {
            self.start = self.start.wrapping_add(len);
            self.end = self.start;
        }
    }

    /// Moves the bytes of the frame to the front of its storage.
    pub fn move_to_front(&mut self) {
        let len = self.len();
        if self.start > 0
            && let Some(bytes) = self.storage.get_mut(..self.end)
        {
            shift_left(bytes, self.start, 0);
        }
        (self.start, self.end) = (0, len);
    }

    /// Removes the last `len` bytes.
    pub fn cut(&mut self, len: usize) {
        self.end = self.end.saturating_sub(len).max(self.start);
    }

    /// Cuts the frame to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start.saturating_add(len));
    }

    /// Returns the bytes of the frame.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn bytes(&self) -> &[u8] {
        self.storage.get(self.start..self.end).unwrap_or(&[])
    }

    /// Returns the bytes of the frame. The caller can change these bytes in place.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.storage.get_mut(self.start..self.end).unwrap_or(&mut [])
    }

    /// Returns the bytes of the frame, with the lifetime of the storage.
    pub fn finish(self) -> &'t mut [u8] {
        let Self { storage, start, end } = self;
        storage.get_mut(start..end).unwrap_or(&mut [])
    }
}
