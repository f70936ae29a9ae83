// Jobs side by side: #/compare/ID,ID

export function show(root, context) {
  context.crumbs("Compare");
  return { close() {} };
}
