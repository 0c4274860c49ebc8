#include "lockstep/training/trainer/model_summary.h"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {
namespace {

struct Row {
  std::string module, kind, shapes, parameters;
};

/// Returns text such as `1,234,567`.
std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"bytes", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

/// Turns `lockstep::SimpleCnnImpl` into SimpleCnn, and `torch::nn::Conv2dImpl` into Conv2d.
std::string module_kind(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const size_t at = name.rfind("::"); at != std::string::npos) name = name.substr(at + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

std::string own_shapes(const torch::nn::Module& module) {
  std::string text;
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    if (!text.empty()) text += ", ";
    text += parameter.key() + " ";
    const auto sizes = whole_sizes(parameter.value());
    for (size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : "x") + std::to_string(sizes[i]);
    if (sizes.empty()) text += "scalar";
    if (!parameter.value().requires_grad()) text += " (frozen)";
  }
  return text;
}

void add_rows(const torch::nn::Module& module, const std::string& name, int64_t depth,
              std::vector<Row>& rows) {
  rows.push_back({name, module_kind(module), own_shapes(module), with_commas(count_parameters(module))});
  if (depth == 0) return;
  for (const auto& child : module.named_children()) {
    add_rows(*child.value(), name.empty() ? child.key() : name + "." + child.key(), depth - 1, rows);
  }
}

}  // namespace

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += c10::multiply_integers(whole_sizes(parameter));
  return count;
}

std::string model_summary(const torch::nn::Module& module, const ModelSummaryOptions& options) {
  std::vector<Row> rows{{"module", "kind", "shapes", "parameters"}};
  add_rows(module, "", options.depth, rows);
  rows[1].module = "(model)";
  std::array<size_t, 4> widths{};
  for (const auto& row : rows) {
    const std::array<const std::string*, 4> cells{&row.module, &row.kind, &row.shapes, &row.parameters};
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i]->size());
  }
  std::string text;
  const auto padded = [](const std::string& cell, size_t width) {
    return cell + std::string(width - cell.size(), ' ');
  };
  for (const auto& row : rows) {
    text += padded(row.module, widths[0]) + "  " + padded(row.kind, widths[1]) + "  " +
            padded(row.shapes, widths[2]) + "  " + std::string(widths[3] - row.parameters.size(), ' ') +
            row.parameters + '\n';
  }
  int64_t trained = 0, frozen = 0, parameter_bytes = 0, buffer_bytes = 0;
  for (const auto& parameter : module.parameters()) {
    (parameter.requires_grad() ? trained : frozen) += c10::multiply_integers(whole_sizes(parameter));
    parameter_bytes += static_cast<int64_t>(parameter.nbytes());
  }
  for (const auto& buffer : module.buffers()) buffer_bytes += static_cast<int64_t>(buffer.nbytes());
  text += with_commas(trained + frozen) + " parameters, " + with_commas(trained) + " of them trained; " +
          bytes_text(parameter_bytes) + " of parameters, " + bytes_text(buffer_bytes) + " of buffers\n";
  return text;
}

}  // namespace lockstep
