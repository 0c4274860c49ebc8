#include "lockstep/strategies/coordinator/closure_values.h"

#include <iterator>

namespace lockstep::detail {

std::string closure_called(const std::string& name) {
  return name.empty() ? "closure" : "closure '" + name + "'";
}

void refuse_closure_value(const ClosureValue& expected, const ClosureValue& given,
                          const ClosurePosition& position) {
  static constexpr const char* kKinds[] = {"a truth value", "an integer", "a number", "a text", "a tensor"};
  static_assert(std::size(kKinds) == std::variant_size_v<ClosureValue>);
  throw InvalidArgument(position.closure + ": expected " + kKinds[expected.index()] + " " + position.value +
                        ", but got " + kKinds[given.index()]);
}

void refuse_closure_arguments(const std::string& name, size_t expected, size_t given) {
  throw InvalidArgument(closure_called(name) + ": expected " + std::to_string(expected) +
                        (expected == 1 ? " argument" : " arguments") + ", but got " + std::to_string(given));
}

}  // namespace lockstep::detail
