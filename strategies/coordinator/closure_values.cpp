#include "lockstep/strategies/coordinator/closure_values.h"

#include <iterator>

namespace lockstep::detail {

void refuse_closure_value(const ClosureValue& expected, const ClosureValue& given,
                          const std::string& position) {
  static constexpr const char* kKinds[] = {"a truth value", "an integer", "a number", "a text", "a tensor"};
  static_assert(std::size(kKinds) == std::variant_size_v<ClosureValue>);
  throw InvalidArgument(std::string("closure: expected ") + kKinds[expected.index()] + " " + position +
                        ", but got " + kKinds[given.index()]);
}

}  // namespace lockstep::detail
