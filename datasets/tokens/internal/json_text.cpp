#include "lockstep/datasets/tokens/internal/json_text.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep {
namespace {

using nlohmann::json;

/// Picks one field's text out of an object while it is parsed. Returning false ends the parsing.
class FieldReader : public json::json_sax_t {
 public:
  FieldReader(std::string_view field, std::string& text) : field_(field), text_(text) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("true or false"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("bytes"); }
  bool string(string_t& text) override {
    if (!is_field_) return value("text");
    text_ = std::move(text);
    is_field_ = false;
    is_found_ = true;
    return true;
  }
  bool start_object(size_t) override { return (depth_ == 0 || value("an object")) && open(); }
  bool start_array(size_t) override { return value("an array") && open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    is_field_ = depth_ == 1 && key == field_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    problem_ = "expected JSON, but it is broken at byte " + std::to_string(position);
    return false;
  }

  std::optional<std::string> problem() const {
    if (problem_.empty() && !is_found_)
      return "expected an object with the field \"" + field_ + "\", but it is missing";
    return problem_.empty() ? std::nullopt : std::optional(problem_);
  }

 private:
  bool value(const char* kind) {
    if (depth_ == 0)
      problem_ = std::string("expected an object, but got ") + kind;
    else if (is_field_)
      problem_ = "expected text in the field \"" + field_ + "\", but got " + kind;
    return problem_.empty();
  }
  bool open() {
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::string field_;
  std::string& text_;
  std::string problem_;
  size_t depth_ = 0;
  bool is_field_ = false;
  bool is_found_ = false;
};

}  // namespace

std::optional<std::string> parse_json_text(std::string_view line, std::string_view field, std::string& text) {
  FieldReader reader(field, text);
  json::sax_parse(line.begin(), line.end(), &reader);
  return reader.problem();
}

}  // namespace lockstep
