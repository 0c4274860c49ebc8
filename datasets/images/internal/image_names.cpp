#include "lockstep/datasets/images/internal/image_names.h"

#include <algorithm>
#include <cctype>

namespace lockstep {

std::string extension_of(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  std::string extension(name.substr(dot));
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

bool has_image_extension(std::string_view name) {
  const std::string extension = extension_of(name);
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg" || extension == ".webp";
}

bool is_hidden(std::string_view name) {
  return name.starts_with('.') || name == "__MACOSX" || name == "Thumbs.db" || name == "desktop.ini";
}

}  // namespace lockstep
