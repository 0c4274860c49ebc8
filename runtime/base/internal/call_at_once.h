#pragma once

#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace lockstep {

/// Calls the functions at the same time: the first one in the calling thread, each other one in a thread of
/// its own. Blocks until all have returned. If the system has no thread left, calls the others one after
/// another, before the first. The functions must not throw.
inline void call_at_once(const std::vector<std::function<void()>>& functions) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < functions.size(); ++i) {
    try {
      threads.emplace_back(functions[i]);
    } catch (const std::system_error&) {
      functions[i]();
    }
  }
  if (!functions.empty()) functions[0]();
  for (auto& thread : threads) thread.join();
}

}  // namespace lockstep
