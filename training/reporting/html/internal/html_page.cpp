#include "lockstep/training/reporting/html/internal/html_page.h"

#include "lockstep/training/reporting/html/internal/html_text.h"

namespace lockstep {

HtmlPage& HtmlPage::line(const std::string& text) {
  header_ +=
      "<p" + std::string(header_.empty() ? " class=\"lead\"" : "") + ">" + escape_html(text) + "</p>\n";
  return *this;
}

HtmlPage& HtmlPage::key_figures(const std::vector<std::pair<std::string, std::string>>& figures) {
  if (figures.empty()) return *this;
  body_ += "<dl class=\"key-figures\">\n";
  for (const auto& [name, value] : figures) {
    body_ += "<div><dt>" + escape_html(name) + "</dt><dd>" + escape_html(value) + "</dd></div>\n";
  }
  body_ += "</dl>\n";
  return *this;
}

HtmlPage& HtmlPage::heading(const std::string& text) {
  body_ += "<h2>" + escape_html(text) + "</h2>\n";
  return *this;
}

HtmlPage& HtmlPage::paragraph(const std::string& text) {
  body_ += "<p>" + escape_html(text) + "</p>\n";
  return *this;
}

HtmlPage& HtmlPage::figures(const std::vector<std::string>& figures) {
  if (figures.empty()) return *this;
  body_ += "<div class=\"figures\">\n";
  for (const auto& figure : figures) body_ += figure;
  body_ += "</div>\n";
  return *this;
}

HtmlPage& HtmlPage::pictures(const std::vector<Picture>& pictures) {
  if (pictures.empty()) return *this;
  body_ += "<div class=\"pictures\">\n";
  for (const auto& picture : pictures) {
    body_ += "<figure><img alt=\"" + escape_html(picture.description) + "\" src=\"data:image/png;base64," +
             base64(picture.png) + "\"><figcaption>" + escape_html(picture.first_line) + "<span>" +
             escape_html(picture.second_line) + "</span></figcaption></figure>\n";
  }
  body_ += "</div>\n";
  return *this;
}

HtmlPage& HtmlPage::elements(const std::string& html) {
  body_ += html;
  return *this;
}

HtmlPage& HtmlPage::folded(const std::string& summary, const std::string& html) {
  body_ += "<details><summary>" + escape_html(summary) + "</summary>\n" + html + "</details>\n";
  return *this;
}

std::string HtmlPage::html() const {
  const std::string title = escape_html(title_);
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
         "style-src 'unsafe-inline'\">\n"
         "<title>" +
         title + "</title>\n<style>\n" + html_style() + "</style>\n</head>\n<body>\n<header>\n<h1>" + title +
         "</h1>\n" + header_ + "</header>\n<main>\n" + body_ + "</main>\n</body>\n</html>\n";
}

}  // namespace lockstep
