// The stream that a function makes for distribute_dataset must have get_batch(n).
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

using namespace lockstep;

struct Stream {
  std::optional<Example> get_batch(size_t) { return std::nullopt; }
};

struct Loader {
  std::optional<Example> next() { return std::nullopt; }
};

void read_stream(MirroredStrategy& strategy) {
  strategy.distribute_dataset([](const InputContext&) { return Stream(); }, {.global_batch_size = 4});
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  strategy.distribute_dataset([](const InputContext&) { return Loader(); }, {.global_batch_size = 4});
#endif
}
