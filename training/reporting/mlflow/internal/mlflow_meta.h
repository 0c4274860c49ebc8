#pragma once

#include <map>
#include <string>

namespace lockstep {

/// Entries of a meta.yaml, by key. Values are YAML scalars as the file spells them.
using MlflowMeta = std::map<std::string, std::string>;

/// Returns the text as a YAML scalar: in double quotes, as in JSON, which YAML reads too. Invalid UTF-8 is
/// replaced by U+FFFD.
std::string yaml_text(const std::string& text);
/// Returns the text of a scalar that MLflow or yaml_text() wrote: plain, or in single or double quotes.
std::string text_of_yaml(const std::string& scalar);

/// Reads the meta.yaml in `folder`. Returns nothing if there is none. Lines that are not `key: scalar` are
/// left out.
MlflowMeta read_mlflow_meta(const std::string& folder);
/// Replaces the meta.yaml in `folder`. Throws std::system_error naming it if it cannot be written.
void write_mlflow_meta(const std::string& folder, const MlflowMeta& meta);

}  // namespace lockstep
