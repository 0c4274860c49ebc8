// jemalloc reads this before main. It then keeps freed pages instead of returning them to the kernel:
// training would fault them in again a moment later. See docs/building.md.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "dirty_decay_ms:-1,muzzy_decay_ms:-1";
}
