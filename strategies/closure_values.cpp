#include "lockstep/strategies/closure_values.h"

namespace lockstep::detail {

void refuse_closure_argument(const ClosureValue& expected, const ClosureValue& given, size_t position) {
  static constexpr const char* kKinds[] = {"a truth value", "an integer", "a number", "a text", "a tensor"};
  static_assert(std::size(kKinds) == std::variant_size_v<ClosureValue>);
  throw InvalidArgument(std::string("closure: expected ") + kKinds[expected.index()] + " as argument " +
                        std::to_string(position) + ", but got " + kKinds[given.index()]);
}

}  // namespace lockstep::detail
