#pragma once

#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace lockstep {

/// Calls `work()` in a new thread and returns its result, or nullopt if it has not returned within `limit`.
/// In that case the thread is left running, so `work` must own everything it uses. Throws what `work()`
/// throws in time. Use it for calls that have no timeout, such as those of a store client whose server may
/// not answer.
template <typename Work>
auto call_with_timeout(std::chrono::milliseconds limit, Work work) {
  using Result = std::invoke_result_t<Work&>;
  std::promise<Result> promise;
  auto result = promise.get_future();
  std::thread([held = std::optional<Work>(std::move(work)), promise = std::move(promise)]() mutable {
    // Destroy what the work holds before the caller continues: the caller may rely on it.
    try {
      Result value = (*held)();
      held.reset();
      promise.set_value(std::move(value));
    } catch (...) {
      held.reset();
      promise.set_exception(std::current_exception());
    }
  }).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::optional<Result>();
  return std::optional<Result>(result.get());
}

}  // namespace lockstep
