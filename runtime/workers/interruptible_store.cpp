#include "lockstep/runtime/workers/interruptible_store.h"

#include <c10/util/Exception.h>

#include <thread>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

// A connection takes at least tens of milliseconds, so such a short pause is not noticeable.
constexpr std::chrono::milliseconds kPause{1};

}  // namespace

c10::intrusive_ptr<c10d::Store> InterruptibleStore::clone() {
  return c10::make_intrusive<InterruptibleStore>(store_->clone(), is_interrupted_, getTimeout());
}

bool InterruptibleStore::check(const std::vector<std::string>& keys) {
  if (store_->check(keys)) return true;
  if (is_interrupted_()) throw CollectiveAborted("the connection was given up");
  return false;
}

std::vector<uint8_t> InterruptibleStore::get(const std::string& key) {
  wait({key});
  return store_->get(key);
}

void InterruptibleStore::wait(const std::vector<std::string>& keys,
                              const std::chrono::milliseconds& timeout) {
  const auto begin = std::chrono::steady_clock::now();
  while (!check(keys)) {
    TORCH_CHECK_WITH(DistStoreError,
                     timeout == kNoTimeout || std::chrono::steady_clock::now() - begin < timeout,
                     "no rank set the key '", keys.front(), "' within ",
                     std::chrono::duration<double>(timeout).count(), " s");
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace lockstep
