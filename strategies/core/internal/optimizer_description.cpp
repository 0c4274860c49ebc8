#include "lockstep/strategies/core/internal/optimizer_description.h"

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <sstream>
#include <typeinfo>

#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {
namespace {

std::string value_text(const c10::IValue& value) {
  if (value.isDouble()) return exact_number(value.toDouble());
  if (!value.isTuple()) return c10::str(value);
  std::vector<std::string> parts;
  for (const auto& part : value.toTupleRef().elements()) parts.push_back(value_text(part));
  return "(" + c10::Join(", ", parts) + ")";
}

/// Returns names and values from the options' serialized form: there is no other way to list them.
std::vector<std::string> describe_options(const torch::optim::OptimizerOptions& options) {
  torch::serialize::OutputArchive saved;
  try {
    options.serialize(saved);
  } catch (const c10::Error&) {  // a user's class without serialization
    return {};
  }
  std::stringstream file;
  saved.save_to(file);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  auto names = archive.keys();
  std::sort(names.begin(), names.end());
  std::vector<std::string> lines;
  for (const auto& name : names) {
    c10::IValue value;
    archive.read(name, value);
    if (name != "lr") lines.push_back(name + " " + value_text(value));
  }
  return lines;
}

}  // namespace

std::vector<std::string> describe_optimizer(const torch::optim::Optimizer& optimizer,
                                            const ParameterDirectory& directory) {
  std::vector<std::string> lines{c10::demangle(typeid(optimizer).name())};
  for (size_t number = 0; number < optimizer.param_groups().size(); ++number) {
    const auto& group = optimizer.param_groups()[number];
    const std::string of_group = c10::str(" of group ", number);
    lines.push_back("learning rate " + exact_number(group.options().get_lr()) + of_group);
    for (const auto& option : describe_options(group.options())) lines.push_back(option + of_group);
    const auto entries = directory.find_all(group.params());
    for (size_t i = 0; i < group.params().size(); ++i) {
      const auto& parameter = group.params()[i];
      const auto name = entries[i] ? "'" + entries[i]->name + "'" : directory.describe(parameter, i);
      lines.push_back(c10::str("parameter ", name, " as number ", i, of_group, ", ", parameter.scalar_type(),
                               " ", whole_sizes(parameter)));
    }
  }
  return lines;
}

}  // namespace lockstep
