#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// A part of a state that was read from a file, which knows its way there as Python writes it:
/// ['optimizer']['state'][0]. Where it is not what the caller asks for, it throws CheckpointError naming the
/// file, the part, what was expected and what is there. It refers to the state, which outlives it.
class StateView {
 public:
  StateView(const StateValue& value, std::string file, std::string path = "")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const StateValue& value() const { return *value_; }
  bool is_none() const { return value_->get_if<std::monostate>() != nullptr; }
  bool truth() const;
  int64_t integer() const;
  int64_t count() const;  ///< an integer that is not negative
  /// An integer, a floating-point number or a tensor of one element.
  double number() const;
  const std::string& text() const;
  const torch::Tensor& tensor() const;
  /// The tensor, which has the shape of `target`, converted to its dtype and on its device, as a copy.
  torch::Tensor tensor_like(const torch::Tensor& target) const;

  /// Of a list or a tuple.
  std::vector<StateView> items() const;
  /// Of a dict.
  std::vector<std::pair<StateValue::Key, StateView>> entries() const;
  /// The entry of a dict.
  StateView at(const StateValue::Key& key) const;
  /// None where a dict does not have it.
  std::optional<StateView> find(const StateValue::Key& key) const;

  [[noreturn]] void fail(const std::string& expected) const;
  [[noreturn]] void fail(const std::string& expected, const std::string& actual) const;

 private:
  const StateValue::Dict& dict() const;
  StateView below(const StateValue& value, const StateValue::Key& key) const;

  const StateValue* value_;
  std::string file_;
  std::string path_;
};

/// Numbers by name, as a dict.
template <typename Numbers>
StateValue::Dict saved_numbers(const Numbers& numbers) {
  StateValue::Dict dict;
  for (const auto& [name, number] : numbers) dict.add(name, number);
  return dict;
}
std::vector<std::pair<std::string, double>> numbers_in(const StateView& saved);

/// A number that may not be there, as a value: None then.
inline StateValue saved_number(std::optional<double> number) {
  return number ? StateValue(*number) : StateValue();
}
inline std::optional<double> number_in(const StateView& saved) {
  return saved.is_none() ? std::nullopt : std::optional(saved.number());
}

}  // namespace lockstep
