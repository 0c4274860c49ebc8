#include "lockstep/runtime/workers/interruptible_store.h"

#include <c10/util/Exception.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

// How often a wait looks whether it is interrupted.
constexpr std::chrono::milliseconds kSlice{20};

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
  for (;;) {
    if (is_interrupted_() && !store_->check(keys)) throw CollectiveAborted("the connection was given up");
    try {
      return store_->wait(keys, kSlice);
    } catch (const c10::DistStoreError&) {  // not yet
      if (timeout != kNoTimeout && std::chrono::steady_clock::now() - begin >= timeout) throw;
    }
  }
}

}  // namespace lockstep
