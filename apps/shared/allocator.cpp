// What jemalloc reads before main: it keeps freed pages instead of giving them back to the kernel, which
// training would fault in again a moment later. See docs/building.md.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "dirty_decay_ms:-1,muzzy_decay_ms:-1";
}
