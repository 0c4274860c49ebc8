#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/formats/state_file.h"

namespace lockstep {

/// Part of a state read from a file. It knows its path in Python's notation, such as
/// ['optimizer']['state'][0]. Each accessor throws CheckpointError if the value is not of the requested kind,
/// naming the file, the path, what was expected and what was found. The state must outlive the view.
///
/// Example:
///
///     StateValue state = load_state_file("last.pt");
///     StateView view(state, "last.pt");
///     int64_t step = view.at("progress").at("step").count();
class StateView {
 public:
  StateView(const StateValue& value, std::string file, std::string path = "")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const StateValue& value() const { return *value_; }
  bool is_none() const { return value_->get_if<std::monostate>() != nullptr; }
  bool truth() const;
  int64_t integer() const;
  int64_t count() const;  ///< Returns a non-negative integer.
  /// Returns an integer, a floating-point number, or a tensor with one element.
  double number() const;
  const std::string& text() const;
  const torch::Tensor& tensor() const;
  /// Returns a copy of the tensor in the dtype and on the device of `target`, whose shape it must have.
  torch::Tensor tensor_like(const torch::Tensor& target) const;

  /// Returns the items of a list or tuple.
  std::vector<StateView> items() const;
  /// Returns the entries of a dict.
  std::vector<std::pair<StateValue::Key, StateView>> entries() const;
  /// Returns an entry of a dict.
  StateView at(const StateValue::Key& key) const;
  /// Returns an entry of a dict, or nothing if the key is missing.
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

/// Returns named numbers as a dict. numbers_in() reads it.
template <typename Numbers>
StateValue::Dict saved_numbers(const Numbers& numbers) {
  StateValue::Dict dict;
  for (const auto& [name, number] : numbers) dict.add(name, number);
  return dict;
}
std::vector<std::pair<std::string, double>> numbers_in(const StateView& saved);

/// Returns the number as a value, or None if there is none. number_in() reads it.
inline StateValue saved_number(std::optional<double> number) {
  return number ? StateValue(*number) : StateValue();
}
inline std::optional<double> number_in(const StateView& saved) {
  return saved.is_none() ? std::nullopt : std::optional(saved.number());
}

}  // namespace lockstep
