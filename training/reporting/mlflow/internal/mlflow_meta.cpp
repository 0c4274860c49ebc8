#include "lockstep/training/reporting/mlflow/internal/mlflow_meta.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/runtime/base/files/internal/regular_file.h"
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
  constexpr size_t kLongestLine = size_t{64} << 10;
  constexpr size_t kMostEntries = 1000;  // MLflow's have about twenty
  MlflowMeta meta;
  try {
    const RegularFile file(path_in(folder));
    LineReader lines(file, kLongestLine);
    while (meta.size() < kMostEntries && lines.next()) {
      const std::string& line = lines.line();
      const auto colon = line.find(": ");
      if (colon != std::string::npos && line.front() != ' ')
        meta[line.substr(0, colon)] = line.substr(colon + 2);
    }
  } catch (const NotARegularFile&) {
  } catch (const std::system_error&) {
  }
  return meta;
}

void write_mlflow_meta(const std::string& folder, const MlflowMeta& meta) {
  std::string text;
  for (const auto& [key, scalar] : meta) text.append(key).append(": ").append(scalar).append("\n");
  replace_file(path_in(folder), text);
}

}  // namespace lockstep
