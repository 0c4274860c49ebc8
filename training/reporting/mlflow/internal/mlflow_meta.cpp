#include "lockstep/training/reporting/mlflow/internal/mlflow_meta.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/runtime/base/files/output_file.h"

namespace lockstep {
namespace {

std::string path_in(const std::string& folder) {
  return folder + "/meta.yaml";
}

}  // namespace

std::string yaml_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::string text_of_yaml(const std::string& scalar) {
  if (scalar.size() < 2 || scalar.front() != scalar.back()) return scalar;
  if (scalar.front() == '"') {
    const auto parsed = nlohmann::json::parse(scalar, nullptr, /*allow_exceptions=*/false);
    return parsed.is_string() ? parsed.get<std::string>() : scalar;
  }
  if (scalar.front() != '\'') return scalar;
  std::string text;
  for (size_t i = 1; i + 1 < scalar.size(); ++i) {
    text += scalar[i];
    if (scalar[i] == '\'') ++i;  // a quote is written twice
  }
  return text;
}

MlflowMeta read_mlflow_meta(const std::string& folder) {
  MlflowMeta meta;
  std::ifstream file(path_in(folder));
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (colon != std::string::npos && line.front() != ' ')
      meta[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return meta;
}

void write_mlflow_meta(const std::string& folder, const MlflowMeta& meta) {
  std::string text;
  for (const auto& [key, scalar] : meta) text.append(key).append(": ").append(scalar).append("\n");
  replace_file(path_in(folder), text);
}

}  // namespace lockstep
