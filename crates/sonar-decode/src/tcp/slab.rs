//! Flows by number, each in one of two queues, whose front was silent longest.

/// No number.
pub(super) const NONE: u32 = u32::MAX;

/// The queue of a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum FlowQueue {
    /// It has delivered nothing: a handshake, or a port scan.
    Embryonic,
    /// All others.
    Open,
}

#[derive(Debug)]
struct SlabSlot<T> {
    previous: u32,
    next: u32,
    queue: FlowQueue,
    value: T,
}

#[derive(Copy, Clone, Debug)]
struct QueueEnds {
    front: u32,
    back: u32,
    len: usize,
}

/// Values by number; the number of a removed value is reused.
#[derive(Debug)]
pub(super) struct Slab<T> {
    // Boxed: growing the table must neither move nor reserve the state of each flow.
    slots: Vec<Option<Box<SlabSlot<T>>>>,
    free: Vec<u32>,
    queues: [QueueEnds; 2],
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            queues: [QueueEnds { front: NONE, back: NONE, len: 0 }; 2],
        }
    }
}

impl<T> Slab<T> {
    #[inline]
    pub fn get(&self, at: u32) -> Option<&T> {
        Some(&self.slots.get(at as usize)?.as_ref()?.value)
    }

    #[inline]
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        Some(&mut self.slots.get_mut(at as usize)?.as_mut()?.value)
    }

    /// The number of the next value.
    pub fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or_else(|| self.end())
    }

    pub fn insert(&mut self, value: T, queue: FlowQueue) -> u32 {
        let slot = Some(Box::new(SlabSlot { previous: NONE, next: NONE, queue, value }));
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.link(at, queue);
        at
    }

    pub fn remove(&mut self, at: u32) -> Option<T> {
        self.unlink(at);
        let slot = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(slot.value)
    }

    /// Puts a flow at the back of `queue`.
    pub fn requeue(&mut self, at: u32, queue: FlowQueue) {
        self.unlink(at);
        self.link(at, queue);
    }

    pub fn front(&self, queue: FlowQueue) -> Option<u32> {
        let front = self.queues[queue as usize].front;
        (front != NONE).then_some(front)
    }

    pub fn queue_len(&self, queue: FlowQueue) -> usize {
        self.queues[queue as usize].len
    }

    /// All numbers that were ever given out are below this.
    pub fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|slot| &slot.value)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten().map(|slot| &mut slot.value)
    }

    pub fn heap_bytes(&self) -> usize {
        (self.slots.len() - self.free.len()) * size_of::<SlabSlot<T>>()
            + self.slots.capacity() * size_of::<Option<Box<SlabSlot<T>>>>()
            + self.free.capacity() * size_of::<u32>()
    }

    fn slot(&mut self, at: u32) -> Option<&mut SlabSlot<T>> {
        self.slots.get_mut(at as usize)?.as_deref_mut()
    }

    fn link(&mut self, at: u32, queue: FlowQueue) {
        let back = self.queues[queue as usize].back;
        let Some(slot) = self.slot(at) else { return };
        (slot.previous, slot.next, slot.queue) = (back, NONE, queue);
        match self.slot(back) {
            Some(last) => last.next = at,
            None => self.queues[queue as usize].front = at,
        }
        self.queues[queue as usize].back = at;
        self.queues[queue as usize].len += 1;
    }

    fn unlink(&mut self, at: u32) {
        let Some(&mut SlabSlot { previous, next, queue, .. }) = self.slot(at) else { return };
        match self.slot(previous) {
            Some(slot) => slot.next = next,
            None => self.queues[queue as usize].front = next,
        }
        match self.slot(next) {
            Some(slot) => slot.previous = previous,
            None => self.queues[queue as usize].back = previous,
        }
        self.queues[queue as usize].len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with two plain lists.
        #[test]
        fn queues_keep_their_order(steps in proptest::collection::vec((0u8..4, any::<usize>()), 0..200)) {
            let mut slab = Slab::default();
            let mut model: [Vec<(u32, usize)>; 2] = Default::default();
            for (step, pick) in steps {
                let queue = if pick % 2 == 0 { FlowQueue::Embryonic } else { FlowQueue::Open };
                let all: Vec<u32> = model.iter().flatten().map(|(at, _)| *at).collect();
                match (step, all.get(pick % all.len().max(1))) {
                    (0 | 1, _) | (_, None) => {
                        let at = slab.insert(pick, queue);
                        model[queue as usize].push((at, pick));
                    }
                    (2, Some(&at)) => {
                        let value = slab.remove(at);
                        let known = model.iter_mut().find_map(|list| {
                            let found = list.iter().position(|(other, _)| *other == at)?;
                            Some(list.remove(found).1)
                        });
                        prop_assert_eq!(value, known);
                    }
                    (_, Some(&at)) => {
                        slab.requeue(at, queue);
                        let value = *slab.get(at).unwrap();
                        model.iter_mut().for_each(|list| list.retain(|(other, _)| *other != at));
                        model[queue as usize].push((at, value));
                    }
                }
                for queue in [FlowQueue::Embryonic, FlowQueue::Open] {
                    let list = &model[queue as usize];
                    prop_assert_eq!(slab.front(queue), list.first().map(|(at, _)| *at));
                    prop_assert_eq!(slab.queue_len(queue), list.len());
                }
                prop_assert_eq!(slab.iter().count(), model[0].len() + model[1].len());
            }
        }
    }
}
