#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The extensions of the images that are read, for messages.
inline constexpr const char* kImageExtensions = ".png, .jpg, .jpeg or .webp";

/// Returns the extension of a file's name or path in lower case, with its dot; empty if there is none.
std::string extension_of(std::string_view name);

/// Returns whether the name ends with one of kImageExtensions, in any case.
bool has_image_extension(std::string_view name);

/// Returns whether a desktop system creates files or folders of this name.
bool is_hidden(std::string_view name);

}  // namespace lockstep
