#pragma once

#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace lockstep {

/// What `work()` returns, called in a thread of its own; nothing where it has not ended after `limit`. Its
/// thread is left behind then, so that it must hold all that it uses. For calls that have no timeout, such as
/// those of a store's client whose server does not answer. Throws what `work()` throws in time.
template <typename Work>
auto call_with_timeout(std::chrono::milliseconds limit, Work work) {
  using Result = std::invoke_result_t<Work&>;
  std::promise<Result> promise;
  auto result = promise.get_future();
  std::thread([held = std::optional<Work>(std::move(work)), promise = std::move(promise)]() mutable {
    // The caller may count on what the work held being gone.
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
