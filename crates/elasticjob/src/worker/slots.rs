//! The jobs of the process by number. A place is used again when its job has left, so that jobs that come and go leave nothing
//! behind; what is still under way for the one before has that one's number.

/// The number of a job: its place, and how many had that before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId {
    place: u32,
    life: u32,
}

impl SlotId {
    /// Its place: one job at a time has it.
    pub(super) fn place(self) -> usize {
        self.place as usize
    }
}

#[derive(Debug)]
pub(super) struct Slots<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

/// Boxed: a place that is free costs next to nothing, and places move when there are more of them.
#[derive(Debug)]
struct Place<T> {
    life: u32,
    slot: Option<Box<T>>,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Slots<T> {
        Slots { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, slot: T) -> SlotId {
        let slot = Some(Box::new(slot));
        if let Some(place) = self.free.pop()
            && let Some(found) = self.places.get_mut(place as usize)
        {
            found.slot = slot;
            return SlotId { place, life: found.life };
        }
        let place = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(Place { life: 0, slot });
        SlotId { place, life: 0 }
    }

    pub(super) fn get(&self, id: SlotId) -> Option<&T> {
        self.places.get(id.place as usize).filter(|place| place.life == id.life)?.slot.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        self.places.get_mut(id.place as usize).filter(|place| place.life == id.life)?.slot.as_deref_mut()
    }

    pub(super) fn take(&mut self, id: SlotId) -> Option<Box<T>> {
        let place = self.places.get_mut(id.place as usize).filter(|place| place.life == id.life)?;
        let slot = place.slot.take()?;
        place.life = place.life.wrapping_add(1);
        self.free.push(id.place);
        Some(slot)
    }

    /// The numbers of all jobs.
    pub(super) fn ids(&self) -> Vec<SlotId> {
        let taken = self.places.iter().zip(0..).filter(|(place, _)| place.slot.is_some());
        taken.map(|(found, place)| SlotId { place, life: found.life }).collect()
    }
}

#[cfg(test)]
impl SlotId {
    /// For tests of what only keeps numbers.
    pub(super) fn of(place: u32) -> SlotId {
        SlotId { place, life: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_the_number_of_the_one_before_leads_nowhere() {
        let mut slots = Slots::new();
        let (one, two) = (slots.insert("one"), slots.insert("two"));
        assert_eq!(slots.take(one).as_deref(), Some(&"one"));
        assert_eq!(slots.take(one), None);
        let next = slots.insert("next");
        assert_eq!(slots.get_mut(one), None);
        assert_eq!(slots.get(one), None);
        assert_eq!((slots.get(two), slots.get(next).copied()), (Some(&"two"), Some("next")));
        for _ in 0..1_000 {
            let id = slots.insert("guest");
            slots.take(id);
        }
        assert_eq!(slots.ids(), vec![next, two]);
        assert_eq!(slots.places.len(), 3);
    }
}
