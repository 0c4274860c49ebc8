#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// Thrown if input data cannot be used: a damaged image, a file of the wrong format, an empty class folder.
/// The message names the file and, if there is one, the field with the expected and the actual value.
/// Lockstep's programs exit with code 3 on it.
///
/// Example:
///
///     try {
///       ImageFolder images("photos");
///     } catch (const DataError& error) {
///       std::cerr << error.what() << '\n';
///     }
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// Makes the message "<file>: <field>: expected <expected>, but got <actual>".
  DataError(const std::string& file, const std::string& field, const std::string& expected,
            const std::string& actual)
      : std::runtime_error(file + ": " + field + ": expected " + expected + ", but got " + actual) {}
};

/// Thrown if a file of an image folder cannot be used as an image: it is missing, damaged, of another format,
/// or of another size than the others. ImageFolderOptions::skip_bad leaves out such files instead.
///
/// Example:
///
///     try {
///       ImageFolder images("photos");
///     } catch (const ImageError& error) {
///       std::cerr << error.what() << "; trying without such images\n";
///       ImageFolder images("photos", {.skip_bad = true});
///     }
class ImageError : public DataError {
 public:
  using DataError::DataError;
};

}  // namespace lockstep
