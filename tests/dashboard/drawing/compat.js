// The scenes ask these for data sources that a server knows; here there is the one of this page.
const nobody = async () => undefined;

export const getDataSourceInstance = nobody;
export const getDataSourceInstanceList = async () => [];
export const getDataSourceInstanceSettings = nobody;
export const getDefaultDataSourceInstanceListItem = nobody;
