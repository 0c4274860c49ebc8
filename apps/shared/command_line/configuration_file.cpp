#include "lockstep/apps/shared/command_line/configuration_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <type_traits>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/internal/regular_file.h"
#include "lockstep/runtime/base/internal/bounded_json.h"
#include "lockstep/runtime/base/internal/closest_name.h"
#include "lockstep/runtime/base/internal/number_text.h"

namespace lockstep::apps {
namespace {

using nlohmann::json;

constexpr int64_t kFormatVersion = 1;
constexpr size_t kMaxBytes = size_t{1} << 20;

[[noreturn]] void refuse_file(const std::string& path, const std::string& reason) {
  throw UsageError(path + ": expected a configuration file that can be read, but: " + reason);
}

/// A file that this process has open already, such as the pipe of a shell's <(command). Reading it waits only
/// for a process that the user has started.
bool is_own_descriptor(const std::string& path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

/// Reads at most one byte more than allowed, whatever kind of file it is.
std::string read_own_descriptor(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) refuse_file(path, std::generic_category().message(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

/// Reads at most one byte more than allowed.
std::string read_text(const std::string& path) {
  if (is_own_descriptor(path)) return read_own_descriptor(path);
  try {
    return RegularFile(path).read_start(kMaxBytes + 1);
  } catch (const NotARegularFile& other) {
    throw UsageError(other.what());
  } catch (const std::system_error& refused) {
    refuse_file(path, refused.code().message());
  }
}

/// The place of a value in a file.
struct Place {
  const std::string& file;
  std::string path;
};

/// Returns a value as text short enough for one line.
std::string shown(const json& value) {
  constexpr size_t kLongest = 80;
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}

[[noreturn]] void refuse_json(const Place& place, const std::string& expected, const json& value) {
  throw UsageError(place.file + ": " + place.path + ": expected " + expected + ", but got " + shown(value));
}

void check_keys(const Place& place, const json& object, const std::vector<std::string>& keys) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    throw UsageError(place.file + ": " + json_path(place.path, key) + ": expected a known key" +
                     did_you_mean(key, keys) + ", but got " + shown(value));
  }
}

std::string joined(const std::vector<std::string>& texts, const std::string& between) {
  std::string text;
  for (const auto& piece : texts) text += (text.empty() ? "" : between) + piece;
  return text;
}

std::string list_text(const Place& place, const json& value) {
  const bool is_list =
      value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), [](const json& piece) {
        return piece.is_string() && piece.get_ref<const std::string&>().find(',') == std::string::npos;
      });
  if (!is_list) refuse_json(place, "an array of texts without commas, or null", value);
  return joined(value.get<std::vector<std::string>>(), ",");
}

/// Returns the value as the flag would be typed.
std::string flag_text(const Place& place, const Flag& flag, const json& value) {
  if (flag.value.empty()) {
    if (!value.is_boolean()) refuse_json(place, "true or false", value);
    return value.get<bool>() ? "true" : "false";
  }
  if (flag.value == "N") {
    if (!value.is_number_integer()) refuse_json(place, "a whole number", value);
    return value.dump();
  }
  if (flag.value == "X") {
    if (!value.is_number()) refuse_json(place, "a number", value);
    return value.is_number_float() ? exact_number(value.get<double>()) : value.dump();
  }
  if (flag.value == "LIST") return list_text(place, value);
  if (!value.is_string()) refuse_json(place, "a text", value);
  return value.get<std::string>();
}

void check_origin(const Place& place, const json& object) {
  std::vector<std::string> names;
  for (const auto kind :
       {OriginKind::kDefault, OriginKind::kEnvironment, OriginKind::kFile, OriginKind::kFlag}) {
    names.push_back(origin_name(kind));
  }
  if (object.contains("origin")) {
    const json& origin = object["origin"];
    const bool is_known =
        origin.is_string() && std::find(names.begin(), names.end(), origin.get<std::string>()) != names.end();
    if (!is_known) refuse_json({place.file, place.path + ".origin"}, joined(names, ", "), origin);
  }
  if (object.contains("name") && !object["name"].is_string())
    refuse_json({place.file, place.path + ".name"}, "a text", object["name"]);
}

void check_head(const std::string& path, const FlagTable& table, const json& root) {
  if (!root.is_object()) refuse_json({path, "the file"}, "an object", root);
  check_keys({path, ""}, root, {"format_version", "program", "version", "values", "resolved"});
  const Place place{path, "format_version"};
  const json version = root.value("format_version", json());
  if (!version.is_number_integer() || version.get<double>() < 1)
    refuse_json(place, "a whole number above 0", version);
  if (version.get<double>() > kFormatVersion) {
    refuse_json(place, std::to_string(kFormatVersion) + " at most, which this version of Lockstep knows",
                version);
  }
  if (root.contains("program") && root["program"] != table.program &&
      (table.former_program.empty() || root["program"] != table.former_program))
    refuse_json({path, "program"}, '"' + table.program + '"', root["program"]);
  if (!root.contains("values") || !root["values"].is_object())
    refuse_json({path, "values"}, "an object", root.value("values", json()));
}

ConfigurationFile read_values(const std::string& path, const FlagTable& table, const json& values) {
  std::vector<std::string> names;
  for (const auto& flag : table.flags) {
    if (flag.role != FlagRole::kAction) names.push_back(long_name(flag));
  }
  check_keys({path, "values"}, values, names);
  ConfigurationFile file{.path = path, .texts = {}};
  for (const auto& [name, entry] : values.items()) {
    const json* value = &entry;
    Place place{path, json_path("values", name)};
    if (entry.is_object()) {
      check_keys(place, entry, {"value", "origin", "name"});
      check_origin(place, entry);
      if (!entry.contains("value")) refuse_json(place, "an object with a value", entry);
      value = &entry["value"];
      place.path += ".value";
    }
    if (value->is_null()) continue;
    const Flag& flag = *find_flag(table, name);
    const std::string text = flag_text(place, flag, *value);
    if (is_read_from_files(flag)) file.texts[name] = text;
  }
  return file;
}

json value_json(const Setting& setting) {
  return std::visit(
      [&](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::monostate>) {
          return json();
        } else {
          if constexpr (std::is_same_v<Value, double>) {
            if (!std::isfinite(value))
              throw InvalidArgument("[configuration_json] expected --" + setting.name +
                                    " to be finite, but got " + std::to_string(value));
          }
          return json(value);
        }
      },
      setting.value);
}

nlohmann::ordered_json settings_json(const std::vector<Setting>& settings) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& setting : settings) {
    auto& entry = object[setting.name];
    entry["value"] = value_json(setting);
    entry["origin"] = origin_name(setting.origin.kind);
    if (!setting.origin.name.empty()) entry["name"] = setting.origin.name;
  }
  return object;
}

}  // namespace

std::string origin_name(OriginKind kind) {
  switch (kind) {
    case OriginKind::kDefault:
      return "default";
    case OriginKind::kEnvironment:
      return "environment";
    case OriginKind::kFile:
      return "file";
    case OriginKind::kFlag:
      return "flag";
  }
  return "";
}

ConfigurationFile read_configuration_file(const std::string& path, const FlagTable& table) {
  json root;
  try {
    root = parse_bounded_json(read_text(path), {.source = path, .max_bytes = kMaxBytes, .max_depth = 8});
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
  check_head(path, table, root);
  return read_values(path, table, root["values"]);
}

std::string configuration_json(const Configuration& configuration) {
  nlohmann::ordered_json root;
  root["format_version"] = kFormatVersion;
  root["program"] = configuration.program;
  root["version"] = configuration.version;
  root["values"] = settings_json(configuration.values);
  root["resolved"] = settings_json(configuration.resolved);
  // A path need not be UTF-8, but JSON must be.
  return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::apps
