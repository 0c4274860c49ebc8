#include "lockstep/training/formats/state_view.h"

#include <c10/util/StringUtil.h>

#include <utility>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

std::string kind_of_tensor(const torch::Tensor& tensor) {
  return c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

std::string describe_value(const StateValue& value) {
  if (const auto* truth = value.get_if<bool>()) return *truth ? "True" : "False";
  if (const auto* integer = value.get_if<int64_t>()) return std::to_string(*integer);
  if (const auto* number = value.get_if<double>()) return c10::str(*number);
  if (const auto* text = value.get_if<std::string>()) return quoted_excerpt(*text);
  if (const auto* tensor = value.get_if<torch::Tensor>()) return kind_of_tensor(*tensor);
  if (value.get_if<StateValue::List>() != nullptr) return "a list";
  if (value.get_if<StateValue::Tuple>() != nullptr) return "a tuple";
  return value.get_if<StateValue::Dict>() != nullptr ? "a dict" : "None";
}

std::string describe_key(const StateValue::Key& key) {
  if (const auto* text = std::get_if<std::string>(&key)) return quoted_excerpt(*text);
  return std::to_string(std::get<int64_t>(key));
}

}  // namespace

bool StateView::truth() const {
  const auto* truth = value_->get_if<bool>();
  if (truth == nullptr) fail("True or False");
  return *truth;
}

int64_t StateView::integer() const {
  const auto* integer = value_->get_if<int64_t>();
  if (integer == nullptr) fail("an integer");
  return *integer;
}

int64_t StateView::count() const {
  const int64_t value = integer();
  if (value < 0) fail("an integer of at least 0");
  return value;
}

double StateView::number() const {
  if (const auto* integer = value_->get_if<int64_t>()) return static_cast<double>(*integer);
  if (const auto* number = value_->get_if<double>()) return *number;
  const auto* tensor = value_->get_if<torch::Tensor>();
  if (tensor == nullptr || tensor->numel() != 1 || tensor->is_complex()) fail("a number");
  return tensor->to(torch::kFloat64).item<double>();
}

const std::string& StateView::text() const {
  const auto* text = value_->get_if<std::string>();
  if (text == nullptr) fail("a string");
  return *text;
}

const torch::Tensor& StateView::tensor() const {
  const auto* tensor = value_->get_if<torch::Tensor>();
  if (tensor == nullptr) fail("a tensor");
  return *tensor;
}

torch::Tensor StateView::tensor_like(const torch::Tensor& target) const {
  const torch::Tensor& given = tensor();
  const bool converts = given.scalar_type() == target.scalar_type() ||
                        (given.is_floating_point() && target.is_floating_point());
  if (given.sizes() != target.sizes() || !converts) fail(kind_of_tensor(target));
  return given.to(target.device(), target.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

std::vector<StateView> StateView::items() const {
  const auto* items = value_->get_if<StateValue::List>();
  if (const auto* tuple = value_->get_if<StateValue::Tuple>()) items = &tuple->items;
  if (items == nullptr) fail("a list");
  std::vector<StateView> views;
  for (const auto& item : *items) views.push_back(below(item, static_cast<int64_t>(views.size())));
  return views;
}

std::vector<std::pair<StateValue::Key, StateView>> StateView::entries() const {
  std::vector<std::pair<StateValue::Key, StateView>> views;
  for (const auto& entry : dict().entries) views.emplace_back(entry.key, below(entry.value, entry.key));
  return views;
}

StateView StateView::at(const StateValue::Key& key) const {
  auto found = find(key);
  if (!found) fail("a key " + describe_key(key), "none");
  return *std::move(found);
}

std::optional<StateView> StateView::find(const StateValue::Key& key) const {
  const StateValue* value = dict().find(key);
  if (value == nullptr) return std::nullopt;
  return below(*value, key);
}

void StateView::fail(const std::string& expected) const {
  fail(expected, describe_value(*value_));
}

void StateView::fail(const std::string& expected, const std::string& actual) const {
  throw CheckpointError(file_, "state" + path_, expected, actual);
}

const StateValue::Dict& StateView::dict() const {
  const auto* dict = value_->get_if<StateValue::Dict>();
  if (dict == nullptr) fail("a dict");
  return *dict;
}

StateView StateView::below(const StateValue& value, const StateValue::Key& key) const {
  return {value, file_, path_ + "[" + describe_key(key) + "]"};
}

std::vector<std::pair<std::string, double>> numbers_in(const StateView& saved) {
  std::vector<std::pair<std::string, double>> numbers;
  for (const auto& [key, value] : saved.entries()) {
    const auto* name = std::get_if<std::string>(&key);
    if (name == nullptr) value.fail("a name as the key", "a number");
    numbers.emplace_back(*name, value.number());
  }
  return numbers;
}

}  // namespace lockstep
