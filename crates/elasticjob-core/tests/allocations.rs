//! What a firing costs the machine: allocations and bytes from its due time to the end of its release, which do not depend on
//! the host, but on the toolchain. Ten thousand jobs a second pay them ten thousand times.

mod desk;

use desk::Desk;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Allocations and bytes of one firing of a job with so many items, all of them ours.
fn cost(items: u32) -> (u64, u64) {
    const FIRINGS: u64 = 10;
    let allocated = || {
        let stats = dhat::HeapStats::get();
        (stats.total_blocks, stats.total_bytes)
    };
    let mut desk = Desk::new(items, allocated);
    (0..FIRINGS).for_each(|_| desk.fire());
    (desk.cost.0 / FIRINGS, desk.cost.1 / FIRINGS)
}

#[test]
fn a_firing_allocates_no_more_than_it_did() {
    let _profiler = dhat::Profiler::builder().testing().build();
    // Measured: 30 and 2,501; 190 and 24,273; 1,943 and 326,999. Lower the bounds if the values decrease.
    for (items, most, most_bytes) in [(1, 32, 2_600), (10, 200, 25_500), (100, 2_050, 340_000)] {
        let (blocks, bytes) = cost(items);
        assert!(blocks > 0 && blocks <= most, "{items} items: {blocks} allocations a firing, {most} at the most");
        assert!(bytes <= most_bytes, "{items} items: {bytes} bytes a firing, {most_bytes} at the most");
    }
}
