#include "lockstep/parameter_server/shards/applied_pushes.h"

#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

bool AppliedPushes::has(const PushId& push) const {
  if (push.closure < first_closure_) return true;
  const auto of_closure = numbers_.find(push.closure);
  return of_closure != numbers_.end() && of_closure->second.contains(push.number);
}

void AppliedPushes::add(const PushId& push) {
  if (push.closure >= first_closure_) numbers_[push.closure].insert(push.number);
}

void AppliedPushes::forget_before(uint64_t closure) {
  if (closure <= first_closure_) return;
  first_closure_ = closure;
  numbers_.erase(numbers_.begin(), numbers_.lower_bound(closure));
}

void AppliedPushes::unite(const AppliedPushes& other) {
  forget_before(other.first_closure_);
  for (const auto& [closure, numbers] : other.numbers_)
    if (closure >= first_closure_) numbers_[closure].insert(numbers.begin(), numbers.end());
}

std::vector<PushId> AppliedPushes::saved() const {
  std::vector<PushId> all{{first_closure_, 0}};
  for (const auto& [closure, numbers] : numbers_)
    for (const uint64_t number : numbers) all.push_back({closure, number});
  return all;
}

AppliedPushes AppliedPushes::restored(const std::vector<PushId>& saved) {
  if (saved.empty() || saved[0].number != 0)
    throw InvalidArgument("[AppliedPushes] expected the first closure that is not forgotten, but got none");
  AppliedPushes pushes;
  pushes.first_closure_ = saved[0].closure;
  for (size_t i = 1; i < saved.size(); ++i) {
    if (pushes.has(saved[i]) || (i > 1 && saved[i] < saved[i - 1])) {
      throw InvalidArgument("[AppliedPushes] push " + std::to_string(saved[i].number) + " of closure " +
                            std::to_string(saved[i].closure) + " is out of order, or there twice");
    }
    pushes.add(saved[i]);
  }
  return pushes;
}

}  // namespace lockstep
