#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace lockstep {

/// Names a push of gradients to one server. It stays the same where the closure that pushes runs again,
/// elsewhere or after a restart.
struct PushId {
  uint64_t closure = 0;
  uint64_t number = 0;  ///< of the closure's pushes

  bool operator==(const PushId&) const = default;
  bool operator<(const PushId& other) const {
    return std::tie(closure, number) < std::tie(other.closure, other.number);
  }
};

/// The pushes that a shard was stepped by, so that none steps it twice. For one thread.
class AppliedPushes {
 public:
  /// Also for a closure that was forgotten.
  bool has(const PushId& push) const;
  void add(const PushId& push);
  /// All closures before `closure` are done: nothing of theirs comes any more, and what does is late.
  void forget_before(uint64_t closure);

  /// Has from now on what `other` has, too.
  void unite(const AppliedPushes& other);

  /// To be saved: first {the first closure that is not forgotten, 0}, then all that were added, in order.
  std::vector<PushId> saved() const;
  /// Throws InvalidArgument for anything that saved() does not give.
  static AppliedPushes restored(const std::vector<PushId>& saved);

 private:
  uint64_t first_closure_ = 0;                      // those before are forgotten
  std::map<uint64_t, std::set<uint64_t>> numbers_;  // by closure
};

}  // namespace lockstep
